#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

// Shape suffixes: B batch, T queries, S keys, H query heads, G key-value heads, D head size,
// X packed heads.
namespace fsdptrain::ops {

// Which keys a query sees, and how scores are scaled; all conditions hold at once. The position of
// query i among the keys is i + S - T: the last query stands beside the last key.
struct AttentionOptions {
  // Keys up to its own position.
  bool causal = true;
  // 0: 1 / sqrt(D).
  double scale = 0;
  // int64 [B, T], where T = S: keys of the query's own document.
  Tensor document_ids = {};
  // Keys less than `window` positions away: with `causal` the last `window` ones, itself included.
  // 0: all.
  std::int64_t window = 0;
};

struct AttentionOutput {
  // [B, T, H, D] in the dtype of q. A query that sees no key gets 0.
  Tensor out;
  // [B, H, T], float64 for float64, else float32: the logarithm of the sum of exp(scale q k) over
  // the visible keys, -infinity where there is none. No gradient.
  Tensor log_sum_exp;
};

// softmax(scale q k^T) v for every head, without a matrix of T by S; blocks of keys that no query
// of a block sees cost nothing. Query heads may be a multiple of key-value heads: each of these
// serves H / G query heads in a row. The tensors may be strided views, of one packed projection
// for example; dtypes float32, float64 or bfloat16.
AttentionOutput attention(const Tensor& q_BTHD, const Tensor& k_BSGD, const Tensor& v_BSGD,
                          const AttentionOptions& options = {});

struct PackedHeads {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
};

// The same for the output of one projection, [B, T, (H + 2 G) D]: all queries, then keys, then
// values. Its gradient is one tensor, written in place.
AttentionOutput packed_attention(const Tensor& qkv_BTX, const PackedHeads& heads,
                                 const AttentionOptions& options = {});

}  // namespace fsdptrain::ops
