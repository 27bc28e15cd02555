#pragma once

#include "runtime/tensor/tensor.h"

// Writes into x's bytes: every tensor that shares them sees it, and one that was saved for a
// backward makes that backward fail. Nothing is recorded, so while gradients are recorded no
// operand may require grad: AutogradError (use autograd::NoGradGuard or detach()). ShapeError for
// an expanded x, in which several elements are one, and for a source that shares x's storage in
// another layout: where the bytes between the first and the last element of the two intersect,
// they may overlap. Element for element on x itself is allowed.
namespace fsdptrain::ops {

// x = source, broadcast to x's shape and converted to its dtype (kernels/copy.h).
void copy_(const Tensor& x, const Tensor& source);
// x = value in every element
void fill_(const Tensor& x, double value);
// x += factor * y, y broadcast to x's shape; one floating dtype.
void add_(const Tensor& x, const Tensor& y, double factor = 1);
// average += weight * (value - average), `value` broadcast to average's shape; one floating dtype.
void lerp_(const Tensor& average, const Tensor& value, double weight);
// x *= factor; floating dtypes.
void scale_(const Tensor& x, double factor);

}  // namespace fsdptrain::ops
