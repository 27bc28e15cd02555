#pragma once

#include <span>

#include "runtime/autograd/gradient_slot.h"
#include "runtime/tensor/tensor.h"

// Reductions over dimensions. Sums run in blocks of fixed size combined in a fixed tree, in the
// op-math type, so that their bits do not depend on the number of threads.
namespace fsdptrain::ops {

// Over the named dims (all if empty); kept with size 1 where `keep_dims`. Integers wrap.
Tensor sum(const Tensor& x, std::span<const int> dims = {}, bool keep_dims = false);
// Floating dtypes only; the mean of nothing is NaN.
Tensor mean(const Tensor& x, std::span<const int> dims = {}, bool keep_dims = false);
// Over one dimension of at least one element; NaN propagates; ties give their gradient to the
// first.
Tensor max(const Tensor& x, int dim, bool keep_dims = false);
// int64 position of the first maximum along one dimension; no gradient.
Tensor argmax(const Tensor& x, int dim, bool keep_dims = false);

// The gradient of a broadcast: sums x over the dimensions that `shape` lacks or has as 1. No
// history; x itself where nothing is to be summed.
Tensor sum_to_shape(const Tensor& x, const Shape& shape);

// The same into a posted gradient: the shape is the destination's, whose floating dtype may be
// another than x's.
void sum_into(const autograd::GradientTarget& target, const Tensor& x);

}  // namespace fsdptrain::ops
