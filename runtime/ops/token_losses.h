#pragma once

#include <cstdint>

#include "kernels/cross_entropy.h"
#include "runtime/tensor/tensor.h"

// What the losses over tokens (loss.h, linear_cross_entropy.h) share.
//
// Shape suffixes: N tokens, V classes.
namespace fsdptrain::ops {

// float64 for float64 logits, else float32.
DType loss_dtype(const Tensor& logits);

// [..., size] as a dense matrix [N, size], and any shape as a dense [N]; no history.
Tensor as_dense_rows(const Tensor& x);
Tensor as_dense_vector(const Tensor& x);

// DTypeError, DeviceError or ShapeError naming `op` unless x is floating, targets are int64 on the
// same device, and their shape is that of x without its last dimension.
void check_targets(const char* op, const Tensor& x, const Tensor& targets);

// ConfigError naming `op` unless label_smoothing is in [0, 1) and z_loss finite and at least 0.
void check_token_loss(const char* op, const kernels::TokenLoss& loss);

// How many targets count. ShapeError for one that is no class; on meta all count.
std::int64_t count_targets(const char* op, const Tensor& targets_N, std::int64_t classes,
                           std::int64_t ignore_index);

// factor * the sum of the losses, a tensor without dimensions and history.
Tensor scaled_total(const Tensor& losses_N, double factor);

}  // namespace fsdptrain::ops
