#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "comm/process_group.h"
#include "comm/run_ranks.h"
#include "comm/world.h"
#include "runtime/tensor/transfer.h"

// Every operation of a process group, of every dtype, so that two backends can be compared.
namespace fsdptrain::testing {

inline constexpr DType kMovedDTypes[] = {DType::Float32, DType::Float64, DType::BFloat16,
                                         DType::Float16, DType::Int64,   DType::Int32,
                                         DType::UInt16,  DType::UInt8};

using Bits = std::vector<std::vector<std::byte>>;

// One rank's part in a program of operations, and what it gets from them.
class CommProgram {
 public:
  CommProgram(comm::World& world, comm::ProcessGroup& group) : world_(world), group_(group) {}

  void run(DType dtype, std::int64_t numel) {
    moves(dtype, numel);
    uneven_moves(dtype, numel);
    pairs(dtype, numel);
    if (dtype != DType::UInt16) {
      for (const comm::Reduction& reduction : reductions(dtype)) {
        reduce_all(dtype, numel, reduction);
      }
    }
  }

  const Bits& bits() const { return bits_; }

 private:
  static std::vector<comm::Reduction> reductions(DType dtype) {
    std::vector<comm::Reduction> all{
        {comm::ReduceOp::Sum}, {comm::ReduceOp::Min}, {comm::ReduceOp::Max}};
    if (is_floating(dtype)) {
      all.push_back({comm::ReduceOp::Avg});
      // A factor that all floating dtypes have.
      all.push_back({comm::ReduceOp::PremulSum, 0.375});
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

  void issue(const comm::Operation& operation) { group_.issue(operation).wait(); }

  Tensor part(const Tensor& whole, std::int64_t index, std::int64_t numel) const {
    return whole.alias({numel}, {1}, index * numel);
  }

  void moves(DType dtype, std::int64_t numel) {
    const int size = group_.size();
    const int root = size / 2;
    const bool is_root = group_.rank() == root;
    const Tensor gathered = output(dtype, numel * size);
    issue(comm::all_gather(gathered, input(dtype, numel)));
    keep(gathered);
    const Tensor in_place = input(dtype, numel * size);
    issue(comm::all_gather(in_place, part(in_place, group_.rank(), numel)));
    keep(in_place);
    const Tensor sent = input(dtype, numel);
    issue(comm::broadcast(sent, root));
    keep(sent);
    const Tensor collected = is_root ? output(dtype, numel * size) : Tensor();
    issue(comm::gather(collected, sent, root));
    if (is_root) {
      keep(collected);
    }
    const Tensor scattered = output(dtype, numel);
    issue(comm::scatter(scattered, is_root ? input(dtype, numel * size) : Tensor(), root));
    keep(scattered);
    const Tensor exchanged = output(dtype, numel * size);
    issue(comm::all_to_all(exchanged, input(dtype, numel * size)));
    keep(exchanged);
  }

  void uneven_moves(DType dtype, std::int64_t numel) {
    comm::Counts counts;
    for (int rank = 0; rank < group_.size(); ++rank) {
      counts.push_back(rank % 2 == 1 ? 0 : std::max<std::int64_t>(numel - rank, 0));
    }
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const std::int64_t mine = counts[static_cast<std::size_t>(group_.rank())];
    const Tensor gathered = output(dtype, total);
    issue(comm::all_gatherv(gathered, input(dtype, mine), counts));
    keep(gathered);
    comm::Counts exchanged;
    for (int rank = 0; rank < group_.size(); ++rank) {
      exchanged.push_back((group_.rank() + rank) % 3 * (numel / 2));
    }
    const std::int64_t number =
        std::accumulate(exchanged.begin(), exchanged.end(), std::int64_t{0});
    const Tensor received = output(dtype, number);
    issue(comm::all_to_all(received, exchanged, input(dtype, number), exchanged));
    keep(received);
    if (dtype != DType::UInt16) {
      const Tensor reduced = output(dtype, mine);
      issue(comm::reduce_scatterv(reduced, input(dtype, total), counts));
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
    group_.batch({comm::send(input(dtype, numel), next), comm::recv(received, previous)}).wait();
    keep(received);
    if (group_.rank() < 2) {
      const Tensor tensor = input(dtype, numel);
      issue(group_.rank() == 0 ? comm::send(tensor, 1) : comm::recv(tensor, 0));
      keep(tensor);
    }
  }

  void reduce_all(DType dtype, std::int64_t numel, const comm::Reduction& reduction) {
    const int size = group_.size();
    const Tensor scattered = output(dtype, numel);
    const Tensor whole = input(dtype, numel * size);
    issue(comm::reduce_scatter(scattered, whole, reduction));
    keep(scattered);
    const Tensor place = part(whole, group_.rank(), numel);
    issue(comm::reduce_scatter(place, whole, reduction));
    keep(whole);
    const Tensor all = input(dtype, numel);
    issue(comm::all_reduce(all, reduction));
    keep(all);
    const Tensor rooted = input(dtype, numel);
    issue(comm::reduce(rooted, size - 1, reduction));
    keep(rooted);
    issue(comm::barrier());
  }

  comm::World& world_;
  comm::ProcessGroup& group_;
  std::int64_t num_inputs_ = 0;
  Bits bits_;
};

using CommBody = std::function<void(comm::World& world, Bits& bits)>;

// What each rank got, on the CPU.
inline std::vector<Bits> bits_on_cpu(int num_ranks, const CommBody& body) {
  std::vector<Bits> bits(static_cast<std::size_t>(num_ranks));
  comm::run_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
    body(world, bits[static_cast<std::size_t>(world.rank())]);
  });
  return bits;
}

inline void every_operation(comm::World& world, Bits& bits) {
  CommProgram program(world, world.group());
  for (const DType dtype : kMovedDTypes) {
    for (const std::int64_t numel : {0, 1, 31}) {
      program.run(dtype, numel);
    }
  }
  bits = program.bits();
}

}  // namespace fsdptrain::testing
