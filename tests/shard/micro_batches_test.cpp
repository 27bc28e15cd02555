#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "models/parallelize.h"
#include "runtime/base/rank_context.h"
#include "tests/support/sharded_chain.h"
#include "tests/support/tiny_decoders.h"

// Steps of several backwards, of which the last one is said to be.
namespace fsdptrain::testing {
namespace {

using comm::World;
using shard::Accumulation;
using shard::Phase;
using shard::ShardedModel;
using shard::ShardedUnit;
using shard::Slot;
using shard::SlotKind;

constexpr int kNumBlocks = 6;

const MemoryCounters& counters() {
  return current_context().allocator(Device::cpu()).counters();
}

template <class MicroBatch>
void step(ShardedModel& model, int num_micro_batches, const MicroBatch& micro_batch) {
  model.zero_grad();
  for (int i = 0; i < num_micro_batches; ++i) {
    model.set_is_last_backward(i + 1 == num_micro_batches);
    autograd::backward(micro_batch(i));
  }
}

// What sharding holds between a micro-batch and the next.
struct Held {
  std::int64_t peak = 0;
  std::size_t num_reducing = 0;
};

// Of a chain, over two steps.
Held held_by(World& world, int num_micro_batches, const ShardedUnit::Options& options) {
  ShardedChain sharded(world, kNumBlocks, options);
  Held held;
  const std::int64_t before = counters().live_of(MemoryCategory::Communication);
  for (int i = 0; i < 2; ++i) {
    sharded.model.zero_grad();
    for (int batch = 0; batch < num_micro_batches; ++batch) {
      sharded.model.set_is_last_backward(batch + 1 == num_micro_batches);
      autograd::backward(sharded.loss(batch));
      std::size_t num_reducing = 0;
      for (const auto& unit : sharded.model.units()) {
        num_reducing += unit->group().gradients_are_final() ? 0 : 1;
        CHECK_FALSE(unit->group().unsharded());
      }
      held.num_reducing = std::max(held.num_reducing, num_reducing);
    }
  }
  held.peak = counters().live_of(MemoryCategory::Communication) - before;
  return held;
}

// The slots that units of the chain's blocks take turns on.
std::size_t num_slots_of_blocks(const shard::SlotPlan& plan, SlotKind kind) {
  std::set<std::size_t> offsets;
  for (const auto& [use, slots] : plan.slots) {
    for (const Slot& slot : slots) {
      if (use.group < kNumBlocks && use.kind == kind) {
        offsets.insert(slot.offset);
      }
    }
  }
  return offsets.size();
}

}  // namespace

TEST_SUITE("shard/micro_batches") {
  TEST_CASE("a step of many micro-batches has the slots of a step of one") {
    on_two_and_three([](World& world) {
      for (const std::optional<bool> reshard : {std::optional<bool>(), std::optional(true)}) {
        const Held one = held_by(world, 1, {.reshard_after_forward = reshard});
        CHECK(one.num_reducing == 0);
        for (const int num : {2, 3, 5}) {
          CAPTURE(num);
          const Held several = held_by(world, num, {.reshard_after_forward = reshard});
          CHECK(several.peak == one.peak);
          // The one that the next micro-batch finishes.
          CHECK(several.num_reducing == 1);
        }
      }
    });
  }

  TEST_CASE("blocks take turns on two slots of parameters and two of gradients") {
    on_two_and_three([](World& world) {
      for (const int num : {1, 4}) {
        CAPTURE(num);
        ShardedChain sharded(world, kNumBlocks, {.reshard_after_forward = true});
        step(sharded.model, num, [&](int i) { return sharded.loss(i); });
        REQUIRE(sharded.model.pool().plan());
        const shard::SlotPlan& plan = *sharded.model.pool().plan();
        CHECK(num_slots_of_blocks(plan, SlotKind::Gradients) <= 4);
        std::size_t num_slots = 0;
        for (const shard::SlotClass& slots : plan.classes) {
          num_slots = std::max(num_slots, slots.num_slots);
        }
        CHECK(num_slots == 4);
      }
    });
  }

  TEST_CASE("from the second step on nothing is allocated, however many micro-batches come") {
    on_two_and_three([](World& world) {
      struct Schedule {
        int prefetch;
        std::optional<bool> reshard;
      };
      for (const Schedule& schedule :
           {Schedule{0, true}, Schedule{1, {}}, Schedule{1, false}, Schedule{2, true}}) {
        for (const Accumulation accumulation : {Accumulation::Sharded, Accumulation::Exact}) {
          CAPTURE(schedule.prefetch);
          ShardedChain sharded(world, 4, {.reshard_after_forward = schedule.reshard},
                               {.accumulation = accumulation, .prefetch = schedule.prefetch});
          std::int64_t allocations = 0;
          // The first step is the one of the plan.
          for (const int num : {4, 4, 1, 3}) {
            CAPTURE(num);
            step(sharded.model, num, [&](int i) { return sharded.loss(i); });
            CHECK((allocations == 0 || counters().raw_allocations == allocations));
            allocations = counters().raw_allocations;
            CHECK(sharded.model.pool().idle());
          }
          CHECK(sharded.model.pool().num_unplanned() == 0);
        }
      }
    });
  }

  TEST_CASE("after a step of one micro-batch the second one of more allocates nothing") {
    on_two_and_three([](World& world) {
      for (const int prefetch : {0, 1, 2}) {
        CAPTURE(prefetch);
        ShardedChain sharded(world, kNumBlocks, {}, {.prefetch = prefetch});
        int num_steps = 0;
        std::int64_t allocations = 0;
        std::int64_t num_unplanned = 0;
        for (const int num : {1, 3, 3, 5, 1, 3}) {
          step(sharded.model, num, [&](int i) { return sharded.loss(i); });
          CHECK((allocations == 0 || counters().raw_allocations == allocations));
          allocations = ++num_steps < 2 ? 0 : counters().raw_allocations;
          if (num_steps == 2) {
            num_unplanned = sharded.model.pool().num_unplanned();
          }
        }
        CHECK(sharded.model.pool().num_unplanned() == num_unplanned);
      }
    });
  }

  TEST_CASE("so it is for a decoder whose head computes its gradient in the forward") {
    for (const int num_ranks : {1, 2, 3}) {
      for (const Accumulation accumulation : {Accumulation::Sharded, Accumulation::Exact}) {
        comm::run_ranks({.num_ranks = num_ranks}, [&](World& world) {
          models::Gpt2 model(tiny_gpt2());
          ShardedModel sharded(model, world.group(), {.seed = 5, .accumulation = accumulation});
          models::parallelize(model, sharded);
          std::int64_t allocations = 0;
          for (const int num : {3, 3, 1, 2, 3}) {
            step(sharded, num, [&](int i) {
              return tiny_loss(model, world.rank(), i, ops::HeadForm::GradientInForward);
            });
            CHECK((allocations == 0 || counters().raw_allocations == allocations));
            allocations = counters().raw_allocations;
          }
          CHECK(sharded.pool().num_unplanned() == 0);
        });
      }
    }
  }

  TEST_CASE("micro-batches that are given up leave nothing to those that follow") {
    on_two_and_three([](World& world) {
      for (const Accumulation accumulation : {Accumulation::Sharded, Accumulation::Exact}) {
        ShardedChain sharded(world, kNumBlocks, {}, {.accumulation = accumulation});
        Unsharded<Chain, ChainLoss> whole({.seed = 5}, kNumBlocks);
        for (int i = 0; i < 3; ++i) {
          // No last one comes.
          sharded.model.zero_grad();
          sharded.model.set_is_last_backward(false);
          autograd::backward(sharded.loss(7));
          autograd::backward(sharded.loss(8));
          sharded.model.zero_grad();
          CHECK(sharded.model.pool().idle());
          step(sharded.model, 1, [&](int /*batch*/) { return sharded.loss(i); });
          sharded.expect_gradients(whole.sum_of_gradients(world.size(), i), 0);
        }
        CHECK(sharded.model.pool().num_unplanned() == 0);
      }
    });
  }
}

}  // namespace fsdptrain::testing
