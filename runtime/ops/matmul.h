#pragma once

#include "runtime/tensor/tensor.h"

namespace fsdptrain::ops {

// a[..., M, K] @ b[..., K, N], with equal leading dimensions, or b[K, N] for all of a. Floating
// dtypes, equal; float32 accumulation for bfloat16.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace fsdptrain::ops
