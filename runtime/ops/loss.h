#pragma once

#include <cstdint>

#include "runtime/base/ignored_target.h"
#include "runtime/tensor/tensor.h"

// Shape suffixes: N tokens, in any number of dimensions from [N] to [B, T]; V classes.
namespace fsdptrain::ops {

enum class Reduction {
  Sum,
  // Over the tokens that are not ignored; DataError on the CPU if there are none.
  Mean,
};

struct CrossEntropyOptions {
  // Tokens with this target count for nothing.
  std::int64_t ignore_index = kIgnoredTarget;
  Reduction reduction = Reduction::Mean;
  // In [0, 1): of each token's loss this share is spread over all classes evenly, the loss being
  // (1 - s) * -log p[target] + s / V * sum of -log p.
  double label_smoothing = 0;
  // At least 0: adds z_loss * log(sum of exp(logits))^2 to each token's loss.
  double z_loss = 0;
};

// -log softmax(logits)[target], summed or averaged to a tensor without dimensions: float64 for
// float64 logits, else float32. Targets are int64, in [0, V) or ignore_index: else ShapeError
// (where there are bytes to read: not on meta). ConfigError for a smoothing or z_loss out of range.
Tensor cross_entropy(const Tensor& logits_NV, const Tensor& targets_N,
                     const CrossEntropyOptions& options = {});

}  // namespace fsdptrain::ops
