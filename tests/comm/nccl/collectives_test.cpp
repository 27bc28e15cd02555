#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/process_group.h"
#include "runtime/tensor/transfer.h"
#include "tests/comm/nccl/fake_ranks.h"

// Every operation over NCCL gives the bits of the same program on the CPU.
namespace fsdptrain::comm {
namespace {

using testing::FakeRanks;
using testing::in_all_orders;

constexpr DType kDTypes[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                             DType::Int64,   DType::Int32,   DType::UInt16,   DType::UInt8};

using Bits = std::vector<std::vector<std::byte>>;

// One rank's part in a program of operations, and what it gets from them.
class Program {
 public:
  Program(World& world, ProcessGroup& group) : world_(world), group_(group) {}

  void run(DType dtype, std::int64_t numel) {
    moves(dtype, numel);
    uneven_moves(dtype, numel);
    pairs(dtype, numel);
    if (dtype != DType::UInt16) {
      for (const Reduction& reduction : reductions(dtype)) {
        reduce_all(dtype, numel, reduction);
      }
    }
  }

  const Bits& bits() const { return bits_; }

 private:
  static std::vector<Reduction> reductions(DType dtype) {
    std::vector<Reduction> all{{ReduceOp::Sum}, {ReduceOp::Min}, {ReduceOp::Max}};
    if (is_floating(dtype)) {
      all.push_back({ReduceOp::Avg});
      // A factor that all floating dtypes have.
      all.push_back({ReduceOp::PremulSum, 0.375});
    }
    return all;
  }

  // Different on every rank and in every call, exact in no 16-bit type.
  Tensor input(DType dtype, std::int64_t numel) {
    Tensor host = Tensor::empty({numel}, dtype);
    ++num_inputs_;
    for (std::int64_t i = 0; i < numel; ++i) {
      const std::int64_t mixed =
          ((i + 7 * num_inputs_) * 2654435761 + world_.rank() * 40503) % 1009;
      host.set_item(i, is_floating(dtype) ? (static_cast<double>(mixed) - 500) / 7.0
                                          : static_cast<double>(mixed % 251));
    }
    return to_device(host, world_.device());
  }

  Tensor output(DType dtype, std::int64_t numel) {
    return Tensor::empty({numel}, dtype, world_.device());
  }

  void keep(const Tensor& tensor) {
    const Tensor host = to_device(tensor, Device::cpu());
    bits_.emplace_back(host.bytes().begin(), host.bytes().end());
  }

  void issue(const Operation& operation) { group_.issue(operation).wait(); }

  Tensor part(const Tensor& whole, std::int64_t index, std::int64_t numel) const {
    return whole.alias({numel}, {1}, index * numel);
  }

  void moves(DType dtype, std::int64_t numel) {
    const int size = group_.size();
    const int root = size / 2;
    const bool is_root = group_.rank() == root;
    const Tensor gathered = output(dtype, numel * size);
    issue(all_gather(gathered, input(dtype, numel)));
    keep(gathered);
    const Tensor in_place = input(dtype, numel * size);
    issue(all_gather(in_place, part(in_place, group_.rank(), numel)));
    keep(in_place);
    const Tensor sent = input(dtype, numel);
    issue(broadcast(sent, root));
    keep(sent);
    const Tensor collected = is_root ? output(dtype, numel * size) : Tensor();
    issue(gather(collected, sent, root));
    if (is_root) {
      keep(collected);
    }
    const Tensor scattered = output(dtype, numel);
    issue(scatter(scattered, is_root ? input(dtype, numel * size) : Tensor(), root));
    keep(scattered);
    const Tensor exchanged = output(dtype, numel * size);
    issue(all_to_all(exchanged, input(dtype, numel * size)));
    keep(exchanged);
  }

  void uneven_moves(DType dtype, std::int64_t numel) {
    Counts counts;
    for (int rank = 0; rank < group_.size(); ++rank) {
      counts.push_back(rank % 2 == 1 ? 0 : std::max<std::int64_t>(numel - rank, 0));
    }
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const std::int64_t mine = counts[static_cast<std::size_t>(group_.rank())];
    const Tensor gathered = output(dtype, total);
    issue(all_gatherv(gathered, input(dtype, mine), counts));
    keep(gathered);
    Counts exchanged;
    for (int rank = 0; rank < group_.size(); ++rank) {
      exchanged.push_back((group_.rank() + rank) % 3 * (numel / 2));
    }
    const std::int64_t number =
        std::accumulate(exchanged.begin(), exchanged.end(), std::int64_t{0});
    const Tensor received = output(dtype, number);
    issue(all_to_all(received, exchanged, input(dtype, number), exchanged));
    keep(received);
    if (dtype != DType::UInt16) {
      const Tensor reduced = output(dtype, mine);
      issue(reduce_scatterv(reduced, input(dtype, total), counts));
      keep(reduced);
    }
  }

  void pairs(DType dtype, std::int64_t numel) {
    const int size = group_.size();
    if (size == 1) {
      return;
    }
    const int next = (group_.rank() + 1) % size;
    const int previous = (group_.rank() + size - 1) % size;
    const Tensor received = output(dtype, numel);
    group_.batch({send(input(dtype, numel), next), recv(received, previous)}).wait();
    keep(received);
    if (group_.rank() < 2) {
      const Tensor tensor = input(dtype, numel);
      issue(group_.rank() == 0 ? send(tensor, 1) : recv(tensor, 0));
      keep(tensor);
    }
  }

  void reduce_all(DType dtype, std::int64_t numel, const Reduction& reduction) {
    const int size = group_.size();
    const Tensor scattered = output(dtype, numel);
    const Tensor whole = input(dtype, numel * size);
    issue(reduce_scatter(scattered, whole, reduction));
    keep(scattered);
    const Tensor place = part(whole, group_.rank(), numel);
    issue(reduce_scatter(place, whole, reduction));
    keep(whole);
    const Tensor all = input(dtype, numel);
    issue(all_reduce(all, reduction));
    keep(all);
    const Tensor rooted = input(dtype, numel);
    issue(reduce(rooted, size - 1, reduction));
    keep(rooted);
    issue(barrier());
  }

  World& world_;
  ProcessGroup& group_;
  std::int64_t num_inputs_ = 0;
  Bits bits_;
};

using Body = std::function<void(World& world, Bits& bits)>;

std::vector<Bits> on_cpu(int num_ranks, const Body& body) {
  std::vector<Bits> bits(static_cast<std::size_t>(num_ranks));
  run_ranks({.num_ranks = num_ranks},
            [&](World& world) { body(world, bits[static_cast<std::size_t>(world.rank())]); });
  return bits;
}

std::vector<Bits> on_nccl(int num_ranks, std::uint64_t seed, const World::Options& options,
                          const Body& body) {
  std::vector<Bits> bits(static_cast<std::size_t>(num_ranks));
  FakeRanks ranks(num_ranks, seed, options);
  ranks.run([&](World& world) { body(world, bits[static_cast<std::size_t>(world.rank())]); });
  ranks.expect_clean();
  return bits;
}

void every_operation(World& world, Bits& bits) {
  Program program(world, world.group());
  for (const DType dtype : kDTypes) {
    for (const std::int64_t numel : {0, 1, 31}) {
      program.run(dtype, numel);
    }
  }
  bits = program.bits();
}

// Of fewer dtypes, in groups of some of the ranks that are made and go away.
void in_groups(World& world, Bits& bits) {
  const int other = world.rank() ^ 1;
  const auto pair =
      world.new_group({std::max(world.rank(), other), std::min(world.rank(), other)}, "pair");
  Program program(world, *pair);
  program.run(DType::Float32, 5);
  bits = program.bits();
  const int across = world.rank() ^ 2;
  const auto column =
      world.new_group({std::min(world.rank(), across), std::max(world.rank(), across)}, "column");
  Program second(world, *column);
  second.run(DType::BFloat16, 5);
  bits.insert(bits.end(), second.bits().begin(), second.bits().end());
}

}  // namespace

TEST_SUITE("comm/nccl/collectives") {
  TEST_CASE("every operation over NCCL has the bits of the CPU, on one to four ranks") {
    for (const int num_ranks : {1, 2, 3, 4}) {
      CAPTURE(num_ranks);
      const std::vector<Bits> expected = on_cpu(num_ranks, every_operation);
      REQUIRE(expected.front().size() > 100);
      in_all_orders([&](std::uint64_t seed) {
        CHECK(on_nccl(num_ranks, seed, {}, every_operation) == expected);
      });
    }
  }

  TEST_CASE("one communicator and stream for all gives the same") {
    const std::vector<Bits> expected = on_cpu(2, every_operation);
    in_all_orders([&](std::uint64_t seed) {
      CHECK(on_nccl(2, seed, {.streams = nccl::Streams::Shared}, every_operation) == expected);
    });
  }

  TEST_CASE("groups of some ranks have communicators of their own") {
    const std::vector<Bits> expected = on_cpu(4, in_groups);
    in_all_orders([&](std::uint64_t seed) { CHECK(on_nccl(4, seed, {}, in_groups) == expected); });
  }

  TEST_CASE("the checking mode changes nothing that is right") {
    const std::vector<Bits> expected = on_cpu(4, in_groups);
    CHECK(on_nccl(4, 3, {.checks = true}, in_groups) == expected);
  }
}

}  // namespace fsdptrain::comm
