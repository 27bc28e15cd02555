#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "runtime/optim/adamw.h"
#include "runtime/tensor/transfer.h"
#include "shard/param_group.h"
#include "tests/comm/nccl/fake_ranks.h"
#include "tests/support/sharded_net.h"

// A group on a GPU that is none, against the same on the CPU: the kernels are the same, so the bits
// are, unless a wait is missing, and then that is reported.
namespace fsdptrain::testing {
namespace {

constexpr int kNumRanks = 2;

struct DeviceNetLoss {
  Tensor operator()(Net& net, int rank, int step, DType dtype) const {
    const Tensor y = net(to_device(batch_of(rank, step, dtype), net.a.weight().device()));
    return ops::sum(ops::multiply(y, y));
  }
};

using Chunks = std::vector<std::vector<double>>;

// What a rank's chunks are after three steps, of two micro-batches each.
Chunks train(comm::World& world, const shard::MixedPrecisionPolicy& policy) {
  Sharded<Net, DeviceNetLoss> sharded(world, {.policy = policy, .seed = 5});
  shard::SlotPool& pool = sharded.lone.pool;
  optim::AdamW optimizer(sharded.group.chunks(), {});
  const MemoryCounters& counters = current_context().allocator(world.group().device()).counters();
  std::int64_t raw_allocations = 0;
  for (int step = 0; step < 3; ++step) {
    sharded.group.zero_grad();
    autograd::backward(sharded.loss(2 * step));
    autograd::backward(sharded.loss(2 * step + 1));
    sharded.group.mark_active_segments();
    optimizer.step(sharded.group.chunks(), 0.01, {});
    sharded.group.bump_epoch();
    pool.end_step();
    // Neither of the device nor of NCCL.
    CHECK((step == 0 || counters.raw_allocations == raw_allocations));
    raw_allocations = counters.raw_allocations;
  }
  CHECK(pool.num_unplanned() == 0);
  Chunks chunks;
  for (const nn::FlatChunk& chunk : sharded.group.chunks()) {
    chunks.push_back(chunk.parameters.to_vector());
  }
  return chunks;
}

void expect_same_bits(const shard::MixedPrecisionPolicy& policy) {
  std::vector<Chunks> expected(kNumRanks);
  comm::run_ranks({.num_ranks = kNumRanks}, [&](comm::World& world) {
    expected[static_cast<std::size_t>(world.rank())] = train(world, policy);
  });
  in_all_orders([&](std::uint64_t seed) {
    FakeRanks ranks(kNumRanks, seed);
    std::vector<Chunks> chunks(kNumRanks);
    ranks.run([&](comm::World& world) {
      chunks[static_cast<std::size_t>(world.rank())] = train(world, policy);
    });
    CHECK(chunks == expected);
    ranks.expect_clean();
  });
}

}  // namespace

TEST_SUITE("shard/param_group on a device") {
  TEST_CASE("two ranks with a fake GPU each train as two on the CPU, bit for bit, in any order") {
    expect_same_bits({});
  }

  TEST_CASE("so they do with bfloat16 compute") {
    expect_same_bits({.param_dtype = DType::BFloat16});
  }
}

}  // namespace fsdptrain::testing
