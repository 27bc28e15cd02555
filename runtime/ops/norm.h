#pragma once

#include "runtime/tensor/tensor.h"

namespace fsdptrain::ops {

// Normalises every row of x [..., C] to mean 0 and variance 1 (plus eps), then scales by weight
// [C] and shifts by bias [C], which may be undefined. One floating dtype; eps > 0, else
// ConfigError. The gradients of weight and bias are posted.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

struct AddLayerNormOutput {
  Tensor sum;
  Tensor normalized;
};

// sum = x + residual and normalized = layer_norm(sum, ...), in one pass over the rows: both
// of one shape, no broadcasting.
AddLayerNormOutput add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                  const Tensor& bias, double eps);

}  // namespace fsdptrain::ops
