#pragma once

#include "runtime/tensor/tensor.h"

// Picks by index. Indices are int64 or int32; on the CPU one that is out of range is a ShapeError
// that names it and its position (on meta there is nothing to look at).
namespace fsdptrain::ops {

// Rows of weight [V, C]: indices of any shape become [..., C]. The gradient of the weight is
// posted: repeated indices are added in order and rounded once.
Tensor embedding(const Tensor& weight, const Tensor& indices);

// y[..., j, ...] = x[..., indices[..., j, ...], ...] along `dim`; x and indices have the same
// sizes elsewhere. The gradient adds repeated indices in order, rounding to x's dtype each time.
Tensor gather(const Tensor& x, int dim, const Tensor& indices);

}  // namespace fsdptrain::ops
