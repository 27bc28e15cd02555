#pragma once

#include "runtime/ops/activation.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::ops {

// x[..., in] @ weight[out, in]^T + bias[out]; bias may be undefined. The gradients of weight and
// bias are posted.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// gelu(linear(x, weight, bias), form), with the GELU taken while the product is in the cache.
Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, GeluForm form);

}  // namespace fsdptrain::ops
