#pragma once

#include "runtime/base/view.h"

// softmax(scale q k^T) v for each head, in tiles: no matrix of queries by keys is ever in memory.
// Shape suffixes: B batch, T queries, S keys, H query heads, G key-value heads, D head size. H is a
// multiple of G: query head h reads key-value head h / (H / G). Strides are free, dtypes float32,
// float64 or bfloat16; log_sum_exp and all arithmetic are in the op-math type (double for float64,
// else float). A query that sees no key gives 0 and a log-sum-exp of -infinity. Bits do not depend
// on the number of threads.
namespace fsdptrain::kernels {

// Which keys a query sees. Tiles without a visible pair are skipped.
struct AttentionMask {
  // Query i sees key j where j <= i + S - T.
  bool causal = true;
  // Where positive, also j > i + S - T - window, and j < i + S - T + window.
  std::int64_t window = 0;
  // Where given, int64 and T = S: only if document_ids[b, i] = document_ids[b, j].
  View document_ids_BT = {};
  bool has_documents = false;
};

struct AttentionForward {
  View out_BTHD;
  View log_sum_exp_BHT;
  View q_BTHD;
  View k_BSGD;
  View v_BSGD;
  double scale = 1;
  AttentionMask mask = {};
};

struct AttentionBackward {
  View dq_BTHD;
  // Sums over the query heads of a key-value head, in their order.
  View dk_BSGD;
  View dv_BSGD;
  View dout_BTHD;
  View q_BTHD;
  View k_BSGD;
  View v_BSGD;
  // What the forward gave.
  View out_BTHD;
  View log_sum_exp_BHT;
  double scale = 1;
  AttentionMask mask = {};
};

void attention_forward(const Launch& launch, const AttentionForward& args);
void attention_backward(const Launch& launch, const AttentionBackward& args);

}  // namespace fsdptrain::kernels
