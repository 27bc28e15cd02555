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

std::optional<Slot> SlotPool::free_slot(std::size_t slot_nbytes) const {
  const auto found = std::ranges::find(plan_->classes, slot_nbytes, &SlotClass::slot_nbytes);
  if (found == plan_->classes.end()) {
    return std::nullopt;
  }
  for (std::size_t number = 0; number < found->num_slots; ++number) {
    const std::size_t offset = found->offset + number * slot_nbytes;
    if (!in_use_.contains(offset)) {
      return Slot{offset, slot_nbytes};
    }
  }
  return std::nullopt;
}

SlotPool::Held SlotPool::take(const SlotUse& use, std::size_t nbytes) {
  if (!plan_) {
    return take_block(nbytes);
  }
  std::optional<Slot> slot = plan_->find(use, occurrences_[use]++);
  if (!slot || slot->nbytes < nbytes || in_use_.contains(slot->offset)) {
    slot = free_slot(size_class(nbytes));
  }
  if (slot) {
    in_use_.insert(slot->offset);
    return {slots_.at(slot->offset), slot};
  }
  if (num_unplanned_++ == 0) {
    log_warning(
        "slots: a step is not as the one that they were planned for: no slot of {} bytes is free "
        "for the {}, which are allocated",
        nbytes, to_string(use));
  }
  fits_plan_ = false;
  return take_block(nbytes);
}

Tensor SlotPool::acquire(const SlotUse& use, std::int64_t numel, DType dtype) {
  const std::size_t nbytes = static_cast<std::size_t>(numel) * size_of(dtype);
  Held taken = take(use, nbytes);
  events_.push_back({SlotEvent::Action::Acquire, use, nbytes});
  const Held& held = held_[use].emplace_back(std::move(taken));
  return Tensor::over(held.bytes.storage(), dtype, {numel}, Strides::contiguous({numel}), 0);
}

void SlotPool::release(const SlotUse& use) {
  std::deque<Held>& held = held_[use];
  check(!held.empty(), "slots: {} are released, but not held", to_string(use));
  events_.push_back({SlotEvent::Action::Release, use, 0});
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
  const bool has_plan = plan_ && fits_plan_;
  if (!has_plan && typical && !events_.empty()) {
    plan_ = plan_slots(events_);
    make_slots();
  }
  if (plan_) {
    blocks_.clear();
  }
  forget_step();
}

void SlotPool::make_slots() {
  std::map<std::size_t, std::vector<Tensor>> bytes_of_size;
  for (const auto& [offset, bytes] : std::exchange(slots_, {})) {
    bytes_of_size[static_cast<std::size_t>(bytes.numel())].push_back(bytes);
  }
  for (const auto& [slot_nbytes, blocks] : blocks_) {
    std::vector<Tensor>& all = bytes_of_size[slot_nbytes];
    all.insert(all.end(), blocks.bytes.begin(), blocks.bytes.end());
  }
  for (const SlotClass& slots : plan_->classes) {
    for (std::size_t number = 0; number < slots.num_slots; ++number) {
      slots_[slots.offset + number * slots.slot_nbytes] =
          bytes_of_size.at(slots.slot_nbytes).at(number);
    }
  }
}

void SlotPool::forget_step() {
  events_.clear();
  occurrences_.clear();
  fits_plan_ = true;
}

void SlotPool::abandon_step() {
  held_.clear();
  blocks_.clear();
  in_use_.clear();
  forget_step();
}

}  // namespace fsdptrain::shard
