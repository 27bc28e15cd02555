#pragma once

#include "runtime/tensor/tensor.h"

// Over the last dimension of a floating tensor of at least one dimension. -infinity has
// probability 0; a row that is all -infinity, or has NaN or +infinity, becomes NaN.
namespace fsdptrain::ops {

Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);

}  // namespace fsdptrain::ops
