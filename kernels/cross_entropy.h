#pragma once

#include <cstdint>

#include "runtime/base/ignored_target.h"
#include "runtime/base/view.h"

// Softmax cross entropy over the rows of logits [N, V]: log(sum of exp(logits)) - logits[target],
// and what TokenLoss says. Logits are float32, float64 or bfloat16 with unit column stride; losses
// and log-sum-exps [N] are of their op-math type (double for float64, else float); targets [N] are
// int64. A row whose target is `ignore_index` has loss 0 and no gradient; all others have targets
// in [0, V).
namespace fsdptrain::kernels {

// The loss of a row, s being label_smoothing (Szegedy et al., arXiv 1512.00567) and z being z_loss
// (Chowdhery et al., arXiv 2204.02311):
//   (1 - s) * -log p[target] + s / V * sum of -log p + z * log_sum_exp^2
struct TokenLoss {
  std::int64_t ignore_index = kIgnoredTarget;
  double label_smoothing = 0;
  double z_loss = 0;
};

struct CrossEntropyForward {
  View losses;
  View log_sum_exps;
  View logits;
  View targets;
  TokenLoss loss = {};
};

struct CrossEntropyBackward {
  // May be the logits.
  View dlogits;
  View logits;
  View log_sum_exps;
  View targets;
  // One element, of the op-math type.
  View dloss;
  double factor = 1;
  TokenLoss loss = {};
};

struct CrossEntropyForwardBackward {
  View losses;
  // In: logits. Out: their gradient times `factor`.
  View logits;
  View targets;
  double factor = 1;
  TokenLoss loss = {};
};

void cross_entropy_forward(const Launch& launch, const CrossEntropyForward& args);

// dlogits = factor * dloss * ((1 + 2 z log_sum_exp) softmax(logits) - (1 - s) onehot(target) - s /
// V) for each row
void cross_entropy_backward(const Launch& launch, const CrossEntropyBackward& args);

// Both at once, in place and without keeping the log-sum-exps.
void cross_entropy_forward_backward(const Launch& launch, const CrossEntropyForwardBackward& args);

}  // namespace fsdptrain::kernels
