#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "tests/comm/nccl/every_operation.h"
#include "tests/comm/nccl/fake_ranks.h"

// Every operation over NCCL gives the bits of the same program on the CPU.
namespace fsdptrain::comm {
namespace {

using testing::Bits;
using testing::bits_on_cpu;
using testing::CommBody;
using testing::CommProgram;
using testing::every_operation;
using testing::FakeRanks;
using testing::in_all_orders;

std::vector<Bits> on_nccl(int num_ranks, std::uint64_t seed, const World::Options& options,
                          const CommBody& body) {
  std::vector<Bits> bits(static_cast<std::size_t>(num_ranks));
  FakeRanks ranks(num_ranks, seed, options);
  ranks.run([&](World& world) { body(world, bits[static_cast<std::size_t>(world.rank())]); });
  ranks.expect_clean();
  return bits;
}

// Of fewer dtypes, in groups of some of the ranks that are made and go away.
void in_groups(World& world, Bits& bits) {
  const int other = world.rank() ^ 1;
  const auto pair =
      world.new_group({std::max(world.rank(), other), std::min(world.rank(), other)}, "pair");
  CommProgram program(world, *pair);
  program.run(DType::Float32, 5);
  bits = program.bits();
  const int across = world.rank() ^ 2;
  const auto column =
      world.new_group({std::min(world.rank(), across), std::max(world.rank(), across)}, "column");
  CommProgram second(world, *column);
  second.run(DType::BFloat16, 5);
  bits.insert(bits.end(), second.bits().begin(), second.bits().end());
}

}  // namespace

TEST_SUITE("comm/nccl/collectives") {
  TEST_CASE("every operation over NCCL has the bits of the CPU, on one to four ranks") {
    for (const int num_ranks : {1, 2, 3, 4}) {
      CAPTURE(num_ranks);
      const std::vector<Bits> expected = bits_on_cpu(num_ranks, every_operation);
      REQUIRE(expected.front().size() > 100);
      in_all_orders([&](std::uint64_t seed) {
        CHECK(on_nccl(num_ranks, seed, {}, every_operation) == expected);
      });
    }
  }

  TEST_CASE("one communicator and stream for all gives the same") {
    const std::vector<Bits> expected = bits_on_cpu(2, every_operation);
    in_all_orders([&](std::uint64_t seed) {
      CHECK(on_nccl(2, seed, {.streams = nccl::Streams::Shared}, every_operation) == expected);
    });
  }

  TEST_CASE("groups of some ranks have communicators of their own") {
    const std::vector<Bits> expected = bits_on_cpu(4, in_groups);
    in_all_orders([&](std::uint64_t seed) { CHECK(on_nccl(4, seed, {}, in_groups) == expected); });
  }

  TEST_CASE("the checking mode changes nothing that is right") {
    const std::vector<Bits> expected = bits_on_cpu(4, in_groups);
    CHECK(on_nccl(4, 3, {.checks = true}, in_groups) == expected);
  }
}

}  // namespace fsdptrain::comm
