#include "runtime/autograd/gradient_slot.h"

#include <algorithm>

#include "kernels/copy.h"

namespace fsdptrain::autograd {

void write_gradient(const GradientTarget& target, const Tensor& gradient) {
  if (target.accumulate) {
    kernels::accumulate(gradient.launch(), target.destination.view(), gradient.view());
  } else {
    kernels::copy(gradient.launch(), target.destination.view(), gradient.view());
  }
}

GradientTarget SlotView::open() const {
  if (ParameterOwner* const owner = slots.empty() ? nullptr : slots.front()->owner.get();
      owner != nullptr && destination.storage()->released()) {
    owner->prepare_gradients();
  }
  destination.view();  // Throws before anything is marked.
  const bool none_written =
      std::ranges::none_of(slots, [](const auto& slot) { return slot->written; });
  if (whole && none_written) {
    for (const auto& slot : slots) {
      slot->written = true;
    }
    return {destination, false};
  }
  for (const auto& slot : slots) {
    if (!slot->written) {
      kernels::fill(slot->buffer.launch(), slot->buffer.view(), 0);
      slot->written = true;
    }
  }
  return {destination, true};
}

void SlotView::abandon(const GradientTarget& target) const {
  if (target.accumulate) {
    return;
  }
  for (const auto& slot : slots) {
    slot->written = false;
  }
}

std::uint64_t SlotView::ahead() const {
  const auto found = std::ranges::find_if(slots, [](const auto& slot) { return slot->ahead != 0; });
  return found == slots.end() ? 0 : (*found)->ahead;
}

void SlotView::set_ahead(std::uint64_t forward) const {
  for (const auto& slot : slots) {
    slot->ahead = forward;
  }
}

}  // namespace fsdptrain::autograd
