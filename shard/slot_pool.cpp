#include "shard/slot_pool.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fsdptrain::shard {

Tensor SlotPool::allocate(std::size_t nbytes) const {
  return ranks_.allocate({static_cast<std::int64_t>(nbytes)}, DType::UInt8);
}

SlotPool::Held SlotPool::take(const SlotUse& use, std::size_t nbytes) {
  if (!plan_) {
    events_.push_back({SlotEvent::Action::Acquire, use, nbytes});
    return {allocate(nbytes), std::nullopt};
  }
  const std::optional<Slot> slot = plan_->find(use, occurrences_[use]++);
  if (slot && slot->nbytes >= nbytes && in_use_.insert(slot->offset).second) {
    Tensor& bytes = slots_[slot->offset];
    if (!bytes.defined()) {
      bytes = allocate(slot->nbytes);
    }
    return {bytes, slot};
  }
  if (num_unplanned_++ == 0) {
    log_warning(
        "slots: a step is not as the first was: its plan has no slot of {} bytes for the {}, which "
        "are allocated",
        nbytes, to_string(use));
  }
  return {allocate(nbytes), std::nullopt};
}

Tensor SlotPool::acquire(const SlotUse& use, std::int64_t numel, DType dtype) {
  const Held& held =
      held_[use].emplace_back(take(use, static_cast<std::size_t>(numel) * size_of(dtype)));
  return Tensor::over(held.bytes.storage(), dtype, {numel}, Strides::contiguous({numel}), 0);
}

void SlotPool::release(const SlotUse& use) {
  std::deque<Held>& held = held_[use];
  check(!held.empty(), "slots: {} are released, but not held", to_string(use));
  if (!plan_) {
    events_.push_back({SlotEvent::Action::Release, use, 0});
  }
  if (held.front().slot) {
    in_use_.erase(held.front().slot->offset);
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
  // A step that took nothing, an evaluation for instance, says nothing about the others.
  if (!plan_ && typical && !events_.empty()) {
    plan_ = plan_slots(events_);
  }
  events_.clear();
  occurrences_.clear();
}

void SlotPool::abandon_step() {
  held_.clear();
  in_use_.clear();
  events_.clear();
  occurrences_.clear();
}

}  // namespace fsdptrain::shard
