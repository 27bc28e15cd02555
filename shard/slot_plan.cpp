#include "shard/slot_plan.h"

#include <deque>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/memory_counters.h"

namespace fsdptrain::shard {
namespace {

// A slot by its number among those of its size: the pool's addresses follow when all are counted.
struct Numbered {
  std::size_t slot_nbytes = 0;
  std::size_t number = 0;
};

// Slots of one size, numbered in the order in which a step needed one more.
class Turns {
 public:
  // The lowest that is free: with as many slots as intervals overlap, always enough.
  std::size_t acquire() {
    if (free_.empty()) {
      return num_slots_++;
    }
    return free_.extract(free_.begin()).value();
  }
  void release(std::size_t number) { free_.insert(number); }
  std::size_t num_slots() const { return num_slots_; }

 private:
  std::set<std::size_t> free_;
  std::size_t num_slots_ = 0;
};

class Planning {
 public:
  void take(const SlotEvent& event) {
    switch (event.action) {
      case SlotEvent::Action::Acquire:
        acquire(event);
        return;
      case SlotEvent::Action::Release:
        release(event.use);
        return;
    }
    fail("slot plan: an unknown action");
  }

  SlotPlan plan() && {
    for (const auto& [use, held] : held_) {
      check(held.empty(), "slot plan: {} are not released by the end of the step", to_string(use));
    }
    SlotPlan plan;
    std::map<std::size_t, std::size_t> offsets;
    std::size_t offset = 0;
    for (const auto& [slot_nbytes, turns] : turns_) {
      const SlotClass slot_class{slot_nbytes, turns.num_slots(), offset};
      offsets[slot_nbytes] = offset;
      const bool overflows = __builtin_mul_overflow(slot_nbytes, turns.num_slots(), &offset) ||
                             __builtin_add_overflow(slot_class.offset, offset, &offset);
      check(!overflows, "slot plan: {} slots of {} bytes have no addresses", turns.num_slots(),
            slot_nbytes);
      plan.classes.push_back(slot_class);
    }
    for (const auto& [use, slots] : numbered_) {
      for (const auto& [slot_nbytes, number] : slots) {
        plan.slots[use].push_back({offsets[slot_nbytes] + number * slot_nbytes, slot_nbytes});
      }
    }
    return plan;
  }

 private:
  void acquire(const SlotEvent& event) {
    const std::size_t slot_nbytes = size_class(event.nbytes);
    const Numbered slot{slot_nbytes, turns_[slot_nbytes].acquire()};
    numbered_[event.use].push_back(slot);
    held_[event.use].push_back(slot);
  }

  void release(const SlotUse& use) {
    std::deque<Numbered>& held = held_[use];
    check(!held.empty(), "slot plan: {} are released, but not held", to_string(use));
    const auto [slot_nbytes, number] = held.front();
    held.pop_front();
    turns_[slot_nbytes].release(number);
  }

  std::map<std::size_t, Turns> turns_;
  std::map<SlotUse, std::vector<Numbered>> numbered_;
  std::map<SlotUse, std::deque<Numbered>> held_;
};

}  // namespace

std::string to_string(const SlotUse& use) {
  return fmt::format("{} of group {} buffer {} in the {}",
                     use.kind == SlotKind::Parameters ? "parameters" : "gradients", use.group,
                     use.buffer, use.phase == Phase::Forward ? "forward" : "backward");
}

std::size_t SlotPlan::pool_nbytes() const {
  return classes.empty() ? 0 : classes.back().offset + classes.back().nbytes();
}

std::optional<Slot> SlotPlan::find(const SlotUse& use, std::size_t occurrence) const {
  const auto found = slots.find(use);
  if (found == slots.end() || occurrence >= found->second.size()) {
    return std::nullopt;
  }
  return found->second[occurrence];
}

SlotPlan plan_slots(std::span<const SlotEvent> events) {
  Planning planning;
  for (const SlotEvent& event : events) {
    planning.take(event);
  }
  return std::move(planning).plan();
}

}  // namespace fsdptrain::shard
