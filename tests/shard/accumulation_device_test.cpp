#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "runtime/optim/adamw.h"
#include "runtime/tensor/transfer.h"
#include "tests/comm/nccl/fake_ranks.h"
#include "tests/support/replicated.h"
#include "tests/support/sharded_chain.h"

// How gradients are added up by a sharded model on a GPU that is none, against the same on the CPU:
// the kernels are the same, so the bits are, unless a wait is missing, and then that is reported.
namespace fsdptrain::testing {
namespace {

constexpr int kNumRanks = 2;
constexpr int kNumBlocks = 3;

struct Schedule {
  shard::ShardedUnit::Options unit = {};
  int prefetch = 1;
  nn::Recompute recompute = nn::Recompute::None;
  bool sync_each = true;
  std::vector<std::vector<std::size_t>> lists = {};
  std::vector<nn::ParameterRule> rules = {};
  shard::Accumulation accumulation = shard::Accumulation::Sharded;
  bool replicated = false;
  // Whether it is said which micro-batch is the last of a step.
  bool says_last = false;
};

using Chunks = std::vector<std::vector<double>>;

// What a rank's chunks are after three steps, of two micro-batches each.
Chunks train(comm::World& world, const Schedule& schedule) {
  const DataParallelAxes axes(world, schedule.replicated);
  ShardedChain sharded(world, kNumBlocks, schedule.unit,
                       {.replicas = axes.replicas,
                        .accumulation = schedule.accumulation,
                        .rules = schedule.rules,
                        .prefetch = schedule.prefetch},
                       schedule.lists, &axes.shards);
  for (const auto& block : sharded.chain.blocks) {
    block->set_recompute(schedule.recompute);
  }
  shard::ShardedModel& model = sharded.model;
  optim::AdamW optimizer(model.chunks(), {});
  const MemoryCounters& counters = current_context().allocator(world.group().device()).counters();
  std::int64_t raw_allocations = 0;
  // Of a step of several backwards the second one may need more.
  const int num_first = schedule.says_last || schedule.replicated ? 2 : 1;
  const auto micro_batch = [&](int number) {
    const Tensor x =
        random_tensor({4, kChainWidth}, static_cast<std::uint64_t>(world.rank() + 100 * number),
                      1.0, DType::Float32);
    const Tensor y = sharded.chain(to_device(x, world.group().device()));
    autograd::backward(ops::sum(ops::multiply(y, y)));
    // Neither of the device nor of NCCL; buffers of gradients without sync are not of the pool.
    CHECK(
        (number < num_first || !schedule.sync_each || counters.raw_allocations == raw_allocations));
    raw_allocations = counters.raw_allocations;
  };
  for (int step = 0; step < 3; ++step) {
    model.zero_grad();
    model.units().back()->set_requires_gradient_sync(schedule.sync_each);
    model.set_is_last_backward(!schedule.says_last);
    micro_batch(2 * step);
    model.set_is_last_backward(true);
    model.units().back()->set_requires_gradient_sync(true);
    micro_batch(2 * step + 1);
    optimizer.step(model.chunks(), 0.01, model.clip_grad_norm(0.5).scale);
    model.bump_epoch();
  }
  CHECK(model.pool().num_unplanned() == 0);
  Chunks chunks;
  for (const nn::FlatChunk& chunk : model.chunks()) {
    chunks.push_back(chunk.parameters.to_vector());
  }
  return chunks;
}

void expect_same_bits(const Schedule& schedule) {
  std::vector<Chunks> expected(kNumRanks);
  comm::run_ranks({.num_ranks = kNumRanks}, [&](comm::World& world) {
    expected[static_cast<std::size_t>(world.rank())] = train(world, schedule);
  });
  in_all_orders([&](std::uint64_t seed) {
    FakeRanks ranks(kNumRanks, seed);
    std::vector<Chunks> chunks(kNumRanks);
    ranks.run([&](comm::World& world) {
      chunks[static_cast<std::size_t>(world.rank())] = train(world, schedule);
    });
    CHECK(chunks == expected);
    ranks.expect_clean();
  });
}

}  // namespace

TEST_SUITE("shard/accumulation on a device") {
  TEST_CASE("a step that adds up exactly is that of the CPU, bit for bit, in any order") {
    expect_same_bits({.accumulation = shard::Accumulation::Exact, .says_last = true});
  }

  TEST_CASE("so are replicas, whose gradients are reduced where they are, once or each time") {
    expect_same_bits({.replicated = true, .says_last = true});
    expect_same_bits({.replicated = true});
    expect_same_bits({.unit = {.policy = {.param_dtype = DType::BFloat16}},
                      .accumulation = shard::Accumulation::Exact,
                      .replicated = true,
                      .says_last = true});
  }
}

}  // namespace fsdptrain::testing
