#pragma once

#include "runtime/tensor/tensor.h"

namespace fsdptrain::ops {

// Normalises every row of x [..., C] to mean 0 and variance 1 (plus eps), then scales by weight
// [C] and shifts by bias [C], which may be undefined. One floating dtype; eps > 0, else
// ConfigError. The gradients of weight and bias are posted.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

struct AddNormOutput {
  Tensor sum;
  Tensor normalized;
};

// sum = x + residual and normalized = layer_norm(sum, ...), in one pass over the rows: both
// of one shape, no broadcasting.
AddNormOutput add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                             const Tensor& bias, double eps);

// Every row of x [..., C] divided by the root of its mean square (plus eps) and scaled by weight
// [C]: x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, arXiv 1910.07467). As layer_norm
// otherwise.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
// As add_layer_norm.
AddNormOutput add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                           double eps);

}  // namespace fsdptrain::ops
