#pragma once

#include <functional>

#include "runtime/autograd/gradient_slot.h"
#include "runtime/tensor/tensor.h"

// Layouts for kernels that take dense operands only: for the ops of this folder.
namespace fsdptrain::ops {

// x without history if its elements are in row-major order without gaps, else a copy that is.
Tensor dense(const Tensor& x);

// Calls write(out, accumulate) for a posted gradient, where `out` is dense: the destination
// itself, or a temporary that is then copied or added to it.
void write_dense(const autograd::GradientTarget& target,
                 const std::function<void(const Tensor& out, bool accumulate)>& write);

}  // namespace fsdptrain::ops
