#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "runtime/tensor/tensor.h"

// Differentiable views and copies between layouts. A view shares its bytes with its base; a view
// of a parameter with a gradient slot shows the same view of the slot.
namespace fsdptrain::ops {

// One size may be -1. Copies where no view does it (a transposed tensor, say).
Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> sizes);
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor transpose(const Tensor& x, int dim_a, int dim_b);
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
Tensor unsqueeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x, int dim);
// Repeats dimensions of size 1; the gradient is summed.
Tensor expand(const Tensor& x, const Shape& shape);
// x itself if its elements are in row-major order without gaps, else a copy that is.
Tensor contiguous(const Tensor& x);
// A copy in memory of its own.
Tensor clone(const Tensor& x);

// Consecutive pieces along `dim`, as views; sizes must add up to the size of `dim`.
std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, int dim);
// Joins along `dim`, as a copy; all other sizes, dtypes and devices are equal.
Tensor cat(std::span<const Tensor> tensors, int dim);

// One stacked view of parameters that their owner placed next to each other: shapes [n_i, ...]
// become [sum n_i, ...]. AutogradError if they are not adjacent in one storage.
Tensor stack_adjacent(std::span<const Tensor> parameters);

}  // namespace fsdptrain::ops
