#pragma once

#include "runtime/tensor/tensor.h"

// Layouts over the same bytes: arithmetic on shape and strides, without history. The
// differentiable forms are in runtime/ops/view.h. ShapeError, naming the function and the values,
// where the layout does not exist.
namespace fsdptrain::views {

// The same elements in row-major order. Where no stride pattern does it (a
// transposed tensor, say), ShapeError: call contiguous first.
Tensor reshape(const Tensor& x, const Shape& shape);
// The shape that reshape() makes of `shape` with one -1.
Shape infer_shape(const Tensor& x, std::span<const std::int64_t> sizes);
bool can_reshape(const Tensor& x, const Shape& shape);

Tensor transpose(const Tensor& x, int dim_a, int dim_b);
// dims[i] is the dimension of x that becomes dimension i.
Tensor permute(const Tensor& x, std::span<const int> dims);
// `length` elements of `dim` from `start` on.
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
// Repeats dimensions of size 1 (and adds leading ones) by stride 0.
Tensor expand(const Tensor& x, const Shape& shape);
Tensor unsqueeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x, int dim);

}  // namespace fsdptrain::views
