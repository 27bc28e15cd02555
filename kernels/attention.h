#pragma once

#include "runtime/base/view.h"

// softmax(scale q k^T) v for each head, in tiles: no matrix of queries by keys is ever in memory.
// Shape suffixes: B batch, T queries, S keys, H heads, D head size. Strides are free, dtypes
// float32, float64 or bfloat16; log_sum_exp and all arithmetic are in the op-math type (double
// for float64, else float). With `causal`, query i sees key j where j <= i + S - T; a query that
// sees no key gives 0 and a log-sum-exp of -infinity. Bits do not depend on the number of threads.
namespace fsdptrain::kernels {

struct AttentionForward {
  View out_BTHD;
  View log_sum_exp_BHT;
  View q_BTHD;
  View k_BSHD;
  View v_BSHD;
  double scale = 1;
  bool causal = true;
};

struct AttentionBackward {
  View dq_BTHD;
  View dk_BSHD;
  View dv_BSHD;
  View dout_BTHD;
  View q_BTHD;
  View k_BSHD;
  View v_BSHD;
  // What the forward gave.
  View out_BTHD;
  View log_sum_exp_BHT;
  double scale = 1;
  bool causal = true;
};

void attention_forward(const Launch& launch, const AttentionForward& args);
void attention_backward(const Launch& launch, const AttentionBackward& args);

}  // namespace fsdptrain::kernels
