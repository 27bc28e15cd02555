#pragma once

#include <memory>

#include "runtime/autograd/meta.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::testing {

// Makes `parameter` a leaf whose gradient is gathered in `destination`.
inline std::shared_ptr<autograd::GradientSlot> give_slot(Tensor& parameter,
                                                         const Tensor& destination) {
  parameter.set_requires_grad(true);
  auto slot = std::make_shared<autograd::GradientSlot>();
  slot->buffer = destination;
  parameter.autograd_meta()->slot = autograd::SlotView{destination, {slot}, true};
  return slot;
}

}  // namespace fsdptrain::testing
