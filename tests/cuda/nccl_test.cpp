#include <vector>

#include <doctest/doctest.h>

#include "comm/nccl/connect.h"
#include "tests/comm/nccl/every_operation.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/one_rank.h"

// What one rank can tell of NCCL: that every call is accepted, and that its results are those of
// the CPU.
namespace fsdptrain::testing {
namespace {

void expect_bits_of_cpu(const comm::World::Options& options, const CommBody& body) {
  if (!has_gpu()) {
    return;
  }
  const Bits expected = bits_on_cpu(1, body).front();
  REQUIRE(expected.size() > 10);
  for (std::uint64_t order = 0; order < num_orders(); ++order) {
    CAPTURE(order);
    Bits bits;
    on_one_rank(order, options, [&](comm::World& world) { body(world, bits); });
    CHECK(bits == expected);
  }
}

}  // namespace

TEST_SUITE("cuda/nccl") {
  TEST_CASE("every operation of one rank over NCCL has the bits of the CPU") {
    expect_bits_of_cpu({}, every_operation);
  }

  TEST_CASE("one communicator and stream for all gives one rank the same") {
    expect_bits_of_cpu({.streams = comm::nccl::Streams::Shared}, every_operation);
  }

  TEST_CASE("a group that is made beside the world has a communicator of its own") {
    expect_bits_of_cpu({}, [](comm::World& world, Bits& bits) {
      const auto group = world.new_group({0}, "alone");
      CommProgram program(world, *group);
      program.run(DType::Float32, 31);
      bits = program.bits();
    });
  }

  TEST_CASE("work of a rank ends when the world is asked to finish") {
    expect_bits_of_cpu({}, [](comm::World& world, Bits& bits) {
      CommProgram program(world, world.group());
      program.run(DType::BFloat16, 1000);
      world.finish();
      bits = program.bits();
    });
  }

  TEST_CASE("a program says which NCCL it was built with and which it runs") {
    const comm::nccl::Versions versions = comm::nccl::versions();
    CHECK(versions.built.starts_with("2."));
    CHECK(versions.running.starts_with("2."));
  }
}

}  // namespace fsdptrain::testing
