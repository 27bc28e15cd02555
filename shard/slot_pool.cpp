#include "shard/slot_pool.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/memory_counters.h"

namespace fsdptrain::shard {

SlotPool::Held SlotPool::take_block(std::size_t nbytes) {
  const std::size_t slot_nbytes = size_class(nbytes);
  auto& [bytes, free] = blocks_[slot_nbytes];
  if (free.empty()) {
    bytes.push_back(ranks_.allocate({static_cast<std::int64_t>(slot_nbytes)}, DType::UInt8));
    free.insert(bytes.size() - 1);
  }
  const std::size_t number = free.extract(free.begin()).value();
  return {bytes[number], std::nullopt, slot_nbytes, number};
}

SlotPool::Held SlotPool::take(const SlotUse& use, std::size_t nbytes) {
  if (!plan_) {
    Held held = take_block(nbytes);
    events_.push_back({SlotEvent::Action::Acquire, use, nbytes});
    return held;
  }
  const std::optional<Slot> slot = plan_->find(use, occurrences_[use]++);
  if (slot && slot->nbytes >= nbytes && in_use_.insert(slot->offset).second) {
    return {slots_.at(slot->offset), slot};
  }
  if (num_unplanned_++ == 0) {
    log_warning(
        "slots: a step is not as the one that they were planned for: there is no slot of {} bytes "
        "for the {}, which are allocated",
        nbytes, to_string(use));
  }
  return take_block(nbytes);
}

Tensor SlotPool::acquire(const SlotUse& use, std::int64_t numel, DType dtype) {
  Held taken = take(use, static_cast<std::size_t>(numel) * size_of(dtype));
  const Held& held = held_[use].emplace_back(std::move(taken));
  return Tensor::over(held.bytes.storage(), dtype, {numel}, Strides::contiguous({numel}), 0);
}

void SlotPool::release(const SlotUse& use) {
  std::deque<Held>& held = held_[use];
  check(!held.empty(), "slots: {} are released, but not held", to_string(use));
  if (!plan_) {
    events_.push_back({SlotEvent::Action::Release, use, 0});
  }
  const Held& oldest = held.front();
  if (oldest.slot) {
    in_use_.erase(oldest.slot->offset);
  } else {
    blocks_[oldest.slot_nbytes].free.insert(oldest.number);
  }
  held.pop_front();
}

bool SlotPool::idle() const {
  return std::ranges::all_of(held_, [](const auto& use_held) { return use_held.second.empty(); });
}

void SlotPool::end_step(bool typical) {
  for (const auto& [use, held] : held_) {
    check(held.empty(), "slots: {} are not released by the end of the step", to_string(use));
  }
  // A step that took nothing says nothing about the others.
  if (!plan_ && typical && !events_.empty()) {
    plan_ = plan_slots(events_);
    make_slots();
  }
  if (plan_) {
    blocks_.clear();
  }
  events_.clear();
  occurrences_.clear();
}

void SlotPool::make_slots() {
  for (const SlotClass& slots : plan_->classes) {
    for (std::size_t number = 0; number < slots.num_slots; ++number) {
      slots_[slots.offset + number * slots.slot_nbytes] =
          blocks_.at(slots.slot_nbytes).bytes.at(number);
    }
  }
}

void SlotPool::abandon_step() {
  held_.clear();
  blocks_.clear();
  in_use_.clear();
  events_.clear();
  occurrences_.clear();
}

}  // namespace fsdptrain::shard
