#include "shard/slot_pool.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/run_ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/optim/adamw.h"
#include "tests/support/sharded_net.h"
#include "tests/support/step_schedule.h"

namespace fsdptrain::shard {
namespace {

using comm::World;
using doctest::Contains;
using testing::StepEvents;
using Addresses = std::vector<const void*>;

constexpr SlotUse kUse{7, Phase::Backward, SlotKind::Gradients, 1};

// Of train(): the first group has a buffer of frozen parameters.
const std::string kUsesOfTrain =
    "parameters of group 0 buffer 0 in the forward; "
    "parameters of group 0 buffer 1 in the forward; "
    "parameters of group 0 buffer 0 in the backward; "
    "parameters of group 0 buffer 1 in the backward; "
    "gradients of group 0 buffer 1 in the backward; "
    "parameters of group 1 buffer 0 in the forward; "
    "parameters of group 1 buffer 0 in the backward; "
    "gradients of group 1 buffer 0 in the backward; ";

const MemoryCounters& counters() {
  return current_context().allocator(Device::cpu()).counters();
}

// Takes and gives back what `events` say, and returns where it was.
Addresses run_step(SlotPool& pool, const std::vector<SlotEvent>& events) {
  Addresses addresses;
  for (const SlotEvent& event : events) {
    if (event.action == SlotEvent::Action::Acquire) {
      const Tensor slot =
          pool.acquire(event.use, static_cast<std::int64_t>(event.nbytes / 4), DType::Float32);
      CHECK(slot.numel() == static_cast<std::int64_t>(event.nbytes / 4));
      addresses.push_back(slot.view().data);
    } else {
      pool.release(event.use);
    }
  }
  pool.end_step();
  return addresses;
}

void on_one_rank(const std::function<void(World&)>& body) {
  comm::run_ranks({.num_ranks = 1}, body);
}

// Three steps of two nets in a row.
void train(World& world, testing::GroupContext& of) {
  testing::Net first;
  nn::Linear second({.in = 3, .out = 5});
  std::vector<std::unique_ptr<ParamGroup>> groups;
  std::vector<std::unique_ptr<optim::AdamW>> optimizers;
  for (nn::Module* const module :
       {static_cast<nn::Module*>(&first), static_cast<nn::Module*>(&second)}) {
    groups.push_back(std::make_unique<ParamGroup>(
        testing::members_of(*module), world.group(), of.pool, of.context,
        ParamGroup::Options{.seed = 5,
                            .tag = {.group = static_cast<std::uint32_t>(groups.size())}}));
    optimizers.push_back(
        std::make_unique<optim::AdamW>(groups.back()->chunks(), optim::AdamW::Options{}));
  }
  std::int64_t raw_allocations = 0;
  for (int step = 0; step < 4; ++step) {
    autograd::backward(
        ops::sum(second(first(testing::batch_of(world.rank(), step, DType::Float32)))));
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i]->mark_active_segments();
      optimizers[i]->step(groups[i]->chunks(), 0.01, {});
      groups[i]->bump_epoch();
      groups[i]->zero_grad();
    }
    of.pool.end_step();
    CHECK((step < 2 || counters().raw_allocations == raw_allocations));
    raw_allocations = counters().raw_allocations;
  }
}

}  // namespace

TEST_SUITE("shard/slot_pool") {
  TEST_CASE("every use has its place in all steps, and from the second on nothing is allocated") {
    on_one_rank([](World& world) {
      SlotPool pool(world.group());
      const std::vector<SlotEvent> events = StepEvents({.num_blocks = 5,
                                                        .num_micro_batches = 2,
                                                        .parameter_nbytes = 4000,
                                                        .gradient_nbytes = 80000})
                                                .events();
      const Addresses first = run_step(pool, events);
      const std::int64_t raw_allocations = counters().raw_allocations;
      REQUIRE(pool.plan() == plan_slots(events));
      const Addresses second = run_step(pool, events);
      CHECK(second == first);
      CHECK(run_step(pool, events) == second);
      CHECK(pool.num_unplanned() == 0);
      // The blocks of the first step serve as slots.
      CHECK(counters().raw_allocations == raw_allocations);
      CHECK(counters().live_of(MemoryCategory::Communication) ==
            static_cast<std::int64_t>(pool.plan()->pool_nbytes()));
      // Uses with the same place in the plan have the same one in memory, and no others.
      std::map<std::size_t, const void*> address_of;
      std::map<SlotUse, std::size_t> occurrences;
      std::size_t acquired = 0;
      for (const SlotEvent& event : events) {
        if (event.action == SlotEvent::Action::Acquire) {
          const Slot slot = pool.plan()->find(event.use, occurrences[event.use]++).value();
          const void* const address = second.at(acquired++);
          CHECK(address_of.emplace(slot.offset, address).first->second == address);
        }
      }
      CHECK(address_of.size() == 4);
    });
  }

  TEST_CASE("what the plan has no place for is allocated beside it") {
    on_one_rank([](World& world) {
      SlotPool pool(world.group());
      const SlotUse other{8, Phase::Forward, SlotKind::Parameters, 0};
      pool.acquire(kUse, 100, DType::Float32);
      pool.release(kUse);
      pool.end_step();
      const Tensor planned = pool.acquire(kUse, 100, DType::Float32);
      // Taken twice at once, larger than it was, and by somebody new.
      const Tensor again = pool.acquire(kUse, 100, DType::Float32);
      const Tensor unknown = pool.acquire(other, 100, DType::Float32);
      CHECK(pool.num_unplanned() == 2);
      CHECK(planned.view().data != again.view().data);
      CHECK(planned.view().data != unknown.view().data);
      pool.release(kUse);
      pool.release(kUse);
      pool.release(other);
      pool.end_step(false);
      pool.acquire(kUse, 10000, DType::Float32);
      CHECK(pool.num_unplanned() == 3);
      pool.release(kUse);
      pool.end_step(false);
      CHECK(pool.acquire(kUse, 100, DType::Float32).view().data == planned.view().data);
      pool.release(kUse);
    });
  }

  TEST_CASE(
      "what the plan does not foresee gets a slot of its size that is free, if there is one") {
    on_one_rank([](World& world) {
      SlotPool pool(world.group());
      const SlotUse other{8, Phase::Forward, SlotKind::Parameters, 0};
      const SlotUse larger{9, Phase::Forward, SlotKind::Parameters, 0};
      const Tensor first = pool.acquire(kUse, 100, DType::Float32);
      const Tensor second = pool.acquire(other, 100, DType::Float32);
      const Tensor third = pool.acquire(larger, 300, DType::Float32);
      for (const SlotUse& use : {kUse, other, larger}) {
        pool.release(use);
      }
      pool.end_step();
      // More often than planned, by somebody new, and where the slot of the plan is taken.
      pool.acquire(kUse, 100, DType::Float32);
      pool.release(kUse);
      CHECK(pool.acquire(kUse, 100, DType::Float32).view().data == first.view().data);
      const SlotUse stranger{10, Phase::Forward, SlotKind::Parameters, 0};
      CHECK(pool.acquire(stranger, 100, DType::Float32).view().data == second.view().data);
      pool.release(kUse);
      CHECK(pool.acquire(other, 100, DType::Float32).view().data == first.view().data);
      CHECK(pool.num_unplanned() == 0);
      // Never one of another size.
      CHECK(pool.acquire(kUse, 100, DType::Float32).view().data != third.view().data);
      CHECK(pool.num_unplanned() == 1);
      for (const SlotUse& use : {kUse, other, stranger}) {
        pool.release(use);
      }
      pool.end_step();
    });
  }

  TEST_CASE("what is given back beside the plan serves again, until the step is over") {
    on_one_rank([](World& world) {
      SlotPool pool(world.group());
      const SlotUse other{8, Phase::Forward, SlotKind::Parameters, 0};
      pool.acquire(kUse, 100, DType::Float32);
      pool.release(kUse);
      pool.end_step();
      const auto held = [] { return counters().live_of(MemoryCategory::Communication); };
      const std::int64_t planned = held();
      pool.acquire(kUse, 100, DType::Float32);
      Addresses addresses;
      for (int i = 0; i < 3; ++i) {
        addresses.push_back(pool.acquire(other, 100, DType::Float32).view().data);
        pool.release(other);
      }
      CHECK(addresses == Addresses(3, addresses.front()));
      CHECK(held() == 2 * planned);
      pool.release(kUse);
      pool.end_step(false);
      CHECK(held() == planned);
    });
  }

  TEST_CASE("a typical step that finds too few slots is planned for from then on") {
    on_one_rank([](World& world) {
      SlotPool pool(world.group());
      const auto step = [&](int num_at_once) {
        for (int i = 0; i < num_at_once; ++i) {
          pool.acquire(kUse, 100, DType::Float32);
        }
        for (int i = 0; i < num_at_once; ++i) {
          pool.release(kUse);
        }
      };
      step(1);
      pool.end_step();
      CHECK(pool.plan()->pool_nbytes() == size_class(400));
      for (const int num_at_once : {3, 2, 1, 3}) {
        CAPTURE(num_at_once);
        step(num_at_once);
        pool.end_step();
        CHECK(pool.plan()->pool_nbytes() == 3 * size_class(400));
        CHECK(counters().live_of(MemoryCategory::Communication) ==
              static_cast<std::int64_t>(pool.plan()->pool_nbytes()));
      }
      CHECK(pool.num_unplanned() == 2);
      step(4);
      pool.end_step(false);
      CHECK(pool.plan()->pool_nbytes() == 3 * size_class(400));
    });
  }

  TEST_CASE("a step that is not typical keeps its bytes for the next one") {
    on_one_rank([](World& world) {
      SlotPool pool(world.group());
      const SlotUse other{8, Phase::Forward, SlotKind::Parameters, 0};
      pool.acquire(kUse, 100, DType::Float32);
      const void* const first = pool.acquire(other, 100, DType::Float32).view().data;
      pool.release(kUse);
      pool.release(other);
      pool.end_step(false);
      CHECK_FALSE(pool.plan().has_value());
      // The one of `kUse`, the lowest number: the plan has no place for more.
      CHECK(pool.acquire(other, 100, DType::Float32).view().data != first);
      pool.release(other);
      pool.end_step();
      CHECK(counters().live_of(MemoryCategory::Communication) ==
            static_cast<std::int64_t>(size_class(400)));
    });
  }

  TEST_CASE("what a use takes twice at once has two places, given back in order") {
    on_one_rank([](World& world) {
      SlotPool pool(world.group());
      const SlotUse other{8, Phase::Forward, SlotKind::Parameters, 0};
      for (int step = 0; step < 3; ++step) {
        pool.acquire(kUse, 100, DType::Float32);
        pool.acquire(kUse, 100, DType::Float32);
        pool.release(kUse);
        // In the place of the first.
        pool.acquire(other, 100, DType::Float32);
        pool.release(kUse);
        pool.release(other);
        pool.end_step();
      }
      CHECK(pool.num_unplanned() == 0);
      CHECK(pool.plan()->pool_nbytes() == 2 * size_class(400));
    });
  }

  TEST_CASE("a place that another use still holds is not given away") {
    on_one_rank([](World& world) {
      SlotPool pool(world.group());
      const SlotUse other{8, Phase::Forward, SlotKind::Parameters, 0};
      for (const SlotUse& use : {kUse, other}) {
        pool.acquire(use, 100, DType::Float32);
        pool.release(use);
      }
      pool.end_step();
      const Tensor first = pool.acquire(kUse, 100, DType::Float32);
      const Tensor second = pool.acquire(other, 100, DType::Float32);
      CHECK(first.view().data != second.view().data);
      CHECK(pool.num_unplanned() == 1);
      CHECK_THROWS_WITH_AS(pool.end_step(), Contains("are not released by the end of the step"),
                           Error);
      pool.abandon_step();
      CHECK(pool.acquire(other, 100, DType::Float32).view().data == first.view().data);
      pool.release(other);
    });
  }

  TEST_CASE("holds that do not fit a step are refused by name, and can be abandoned") {
    on_one_rank([](World& world) {
      SlotPool pool(world.group());
      CHECK_THROWS_WITH_AS(
          pool.release(kUse),
          Contains("gradients of group 7 buffer 1 in the backward are released, but not held"),
          Error);
      pool.acquire(kUse, 1, DType::Float32);
      CHECK_THROWS_WITH_AS(pool.end_step(),
                           Contains("gradients of group 7 buffer 1 in the backward are not "
                                    "released by the end of the step"),
                           Error);
      pool.abandon_step();
      CHECK(counters().live_of(MemoryCategory::Communication) == 0);
      pool.end_step();
      CHECK_FALSE(pool.plan().has_value());
    });
  }

  TEST_CASE("groups that share a pool have a place for each use, and allocate no more") {
    testing::on_ranks([](World& world) {
      testing::GroupContext of(world.group());
      const SlotPool& pool = of.pool;
      train(world, of);
      CHECK(pool.num_unplanned() == 0);
      std::string uses;
      for (const auto& [use, slots] : pool.plan().value_or(SlotPlan{}).slots) {
        uses += to_string(use) + "; ";
      }
      CHECK(uses == (world.size() == 1 ? "" : kUsesOfTrain));
    });
  }
}

}  // namespace fsdptrain::shard
