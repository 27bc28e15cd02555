#pragma once

#include <cstdint>

#include "runtime/base/ignored_target.h"
#include "runtime/tensor/tensor.h"

// Shape suffixes: N tokens, in any number of dimensions from [N] to [B, T]; V classes; C features.
namespace fsdptrain::ops {

// How linear_cross_entropy comes by its gradients.
enum class HeadForm {
  // Computes the logits again in backward. Fits any graph.
  Recompute,
  // Computes the gradients in forward, while the logits are there; the weight's goes into its
  // gradient slot at once. One product less, but the result must be the root of the backward (its
  // gradient is 1: scale by loss_scale instead), and the next forward with the same weight comes
  // after that backward, or after zero_grad(); AutogradError otherwise.
  GradientInForward,
};

struct LinearCrossEntropyOptions {
  std::int64_t ignore_index = kIgnoredTarget;
  double loss_scale = 1;
  // As in CrossEntropyOptions (loss.h).
  double label_smoothing = 0;
  double z_loss = 0;
  HeadForm form = HeadForm::Recompute;
};

// loss_scale * the sum of cross_entropy(hidden weight^T, targets), over kHeadChunk tokens at a
// time, so that only so many rows of logits are ever in memory. hidden [..., C], weight [V, C] and
// targets [...]; the result has no dimensions and is float64 for float64 operands, else float32.
Tensor linear_cross_entropy(const Tensor& hidden_NC, const Tensor& weight_VC,
                            const Tensor& targets_N, const LinearCrossEntropyOptions& options = {});

inline constexpr std::int64_t kHeadChunk = 256;

}  // namespace fsdptrain::ops
