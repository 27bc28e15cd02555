#include "shard/slot_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/memory_counters.h"
#include "tests/support/step_schedule.h"

namespace fsdptrain::shard {
namespace {

using doctest::Contains;
using testing::StepEvents;
using Action = SlotEvent::Action;
using Events = std::vector<SlotEvent>;

constexpr SlotUse kForward{0, Phase::Forward, SlotKind::Parameters};
constexpr SlotUse kGradients{0, Phase::Backward, SlotKind::Gradients};

// A slot that is in use, and what took it.
struct Held {
  SlotUse use;
  Slot slot;
};

bool overlap(const Slot& a, const Slot& b) {
  return a.offset < b.offset + b.nbytes && b.offset < a.offset + a.nbytes;
}

// Walks through the step by the plan: what is in use at once never shares a byte and is as large as
// it must be. Returns how many slots of each size were in use at once, at most.
std::map<std::size_t, std::size_t> most_in_use(const Events& events, const SlotPlan& plan) {
  std::vector<Held> held;
  std::map<SlotUse, std::size_t> occurrences;
  std::map<std::size_t, std::size_t> in_use;
  std::map<std::size_t, std::size_t> most;
  for (const SlotEvent& event : events) {
    if (event.action == Action::Release) {
      const auto oldest = std::ranges::find(held, event.use, &Held::use);
      REQUIRE(oldest != held.end());
      --in_use[oldest->slot.nbytes];
      held.erase(oldest);
      continue;
    }
    const auto slot = plan.find(event.use, occurrences[event.use]++);
    REQUIRE(slot.has_value());
    REQUIRE(slot->nbytes == size_class(event.nbytes));
    REQUIRE(slot->offset + slot->nbytes <= plan.pool_nbytes());
    REQUIRE(slot->offset % kAlignment == 0);
    for (const Held& other : held) {
      REQUIRE(!overlap(*slot, other.slot));
    }
    held.push_back({event.use, *slot});
    most[slot->nbytes] = std::max(most[slot->nbytes], ++in_use[slot->nbytes]);
  }
  return most;
}

std::map<std::size_t, std::size_t> slots_by_size(const SlotPlan& plan) {
  std::map<std::size_t, std::size_t> counts;
  for (const SlotClass& slot_class : plan.classes) {
    counts[slot_class.slot_nbytes] = slot_class.num_slots;
  }
  return counts;
}

Events random_events(std::mt19937& random) {
  constexpr std::array<std::size_t, 6> kSizes = {0, 1, 64, 1000, 1001, 70000};
  Events events;
  std::vector<SlotUse> held;
  for (int i = 0; i < 60; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      const auto released = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
      events.push_back({Action::Release, *released, 0});
      held.erase(released);
      continue;
    }
    const SlotUse use{static_cast<std::uint32_t>(random() % 5),
                      random() % 2 == 0 ? Phase::Forward : Phase::Backward,
                      random() % 2 == 0 ? SlotKind::Parameters : SlotKind::Gradients, random() % 2};
    events.push_back({Action::Acquire, use, kSizes[random() % kSizes.size()]});
    held.push_back(use);
  }
  for (const SlotUse& use : held) {
    events.push_back({Action::Release, use, 0});
  }
  return events;
}

TEST_SUITE("shard/slot_plan") {
  TEST_CASE("what is in use at once shares no byte, and no slot is superfluous") {
    std::mt19937 random(3);
    for (int sample = 0; sample < 300; ++sample) {
      CAPTURE(sample);
      const Events events = random_events(random);
      const SlotPlan plan = plan_slots(events);
      CHECK(slots_by_size(plan) == most_in_use(events, plan));
      CHECK(plan == plan_slots(events));
    }
  }

  TEST_CASE("a step of equal blocks needs 1 + prefetch slots, and one for each open reduction") {
    constexpr std::size_t kParameters = 2000;
    constexpr std::size_t kGradients32 = 4000;
    for (const int num_blocks : {1, 2, 3, 7, 48}) {
      for (const int prefetch : {0, 1, 2}) {
        for (const int open_reductions : {0, 1, 2}) {
          for (const bool keep_last : {false, true}) {
            CAPTURE(num_blocks);
            CAPTURE(prefetch);
            CAPTURE(open_reductions);
            CAPTURE(keep_last);
            const Events events = StepEvents({.num_blocks = num_blocks,
                                              .prefetch = prefetch,
                                              .open_reductions = open_reductions,
                                              .keep_last = keep_last,
                                              .num_micro_batches = 3,
                                              .parameter_nbytes = kParameters,
                                              .gradient_nbytes = kGradients32})
                                      .events();
            const SlotPlan plan = plan_slots(events);
            const auto slots = static_cast<std::size_t>(std::min(num_blocks, 1 + prefetch));
            const auto gradients =
                static_cast<std::size_t>(std::min(num_blocks, 1 + open_reductions));
            CHECK(slots_by_size(plan) ==
                  std::map<std::size_t, std::size_t>{{size_class(kParameters), slots},
                                                     {size_class(kGradients32), gradients}});
            CHECK(plan.pool_nbytes() ==
                  slots * size_class(kParameters) + gradients * size_class(kGradients32));
            most_in_use(events, plan);
          }
        }
      }
    }
  }

  TEST_CASE("parameters and gradients of one size take turns on the same slots") {
    const Events events =
        StepEvents({.num_blocks = 6, .parameter_nbytes = 4096, .gradient_nbytes = 4096}).events();
    // In the backward two are gathered, one gets gradients and those of another are reduced.
    CHECK(slots_by_size(plan_slots(events)) == std::map<std::size_t, std::size_t>{{4096, 4}});
  }

  TEST_CASE("a group has the same slot in every micro-batch") {
    const Events events = StepEvents({.num_blocks = 5,
                                      .prefetch = 2,
                                      .num_micro_batches = 4,
                                      .parameter_nbytes = 100,
                                      .gradient_nbytes = 100})
                              .events();
    const SlotPlan plan = plan_slots(events);
    CHECK(plan.slots.size() == 5 + 4 + 5);
    for (const auto& [use, slots] : plan.slots) {
      CAPTURE(to_string(use));
      REQUIRE(slots.size() == 4);
      CHECK(std::ranges::count(slots, slots.front()) == 4);
    }
  }

  TEST_CASE("a request that the plan did not see has no slot") {
    const Events events = {{Action::Acquire, kForward, 10}, {Action::Release, kForward, 0}};
    const SlotPlan plan = plan_slots(events);
    CHECK(plan.find(kForward, 0) == Slot{0, 64});
    CHECK(!plan.find(kForward, 1).has_value());
    CHECK(!plan.find(kGradients, 0).has_value());
    CHECK(plan_slots({}).pool_nbytes() == 0);
  }

  TEST_CASE("what a use takes twice is given back in the order it was taken") {
    const Events events = {{Action::Acquire, kGradients, 64}, {Action::Acquire, kGradients, 4096},
                           {Action::Release, kGradients, 0},  {Action::Acquire, kForward, 64},
                           {Action::Release, kForward, 0},    {Action::Release, kGradients, 0}};
    const SlotPlan plan = plan_slots(events);
    CHECK(plan.find(kForward, 0) == Slot{0, 64});
    CHECK(plan.classes == std::vector<SlotClass>{{64, 1, 0}, {4096, 1, 64}});
  }

  TEST_CASE("holds that do not begin or do not end are refused by name") {
    CHECK_THROWS_WITH_AS(
        plan_slots(Events{{Action::Release, kGradients, 0}}),
        Contains("gradients of group 0 buffer 0 in the backward are released, but not held"),
        Error);
    CHECK_THROWS_WITH_AS(plan_slots(Events{{Action::Acquire, kForward, 1}}),
                         Contains("parameters of group 0 buffer 0 in the forward are not released "
                                  "by the end of the step"),
                         Error);
    CHECK_THROWS_AS(plan_slots(Events{{Action::Acquire, kForward, std::size_t{1} << 63}}),
                    OutOfMemoryError);
  }

  TEST_CASE("a pool that has no addresses is refused") {
    Events events;
    for (int i = 0; i < 8; ++i) {
      events.push_back({Action::Acquire, kForward, std::size_t{1} << 61});
    }
    for (int i = 0; i < 8; ++i) {
      events.push_back({Action::Release, kForward, 0});
    }
    CHECK_THROWS_WITH_AS(plan_slots(events),
                         Contains("8 slots of 2305843009213693952 bytes have no addresses"), Error);
  }
}

}  // namespace
}  // namespace fsdptrain::shard
