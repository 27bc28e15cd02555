#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

// Shape suffixes: B batch, T queries, S keys, H heads, D head size, X packed heads.
namespace fsdptrain::ops {

struct AttentionOptions {
  // Query i sees key j where j <= i + S - T: the last query sees every key.
  bool causal = true;
  // 0: 1 / sqrt(D).
  double scale = 0;
  // The three below are refused until they are supported. Positions of the queries [B, T]:
  Tensor positions = {};
  // Pairs of different documents do not see each other: [B, T].
  Tensor document_ids = {};
  // Of the visible keys, the last `window` only; 0: all.
  std::int64_t window = 0;
};

struct AttentionOutput {
  // [B, T, H, D] in the dtype of q. A query that sees no key gets 0.
  Tensor out;
  // [B, H, T], float64 for float64, else float32: the logarithm of the sum of exp(scale q k) over
  // the visible keys, -infinity where there is none. No gradient.
  Tensor log_sum_exp;
};

// softmax(scale q k^T) v for every head, without a matrix of T by S. The tensors may be strided
// views, of one packed projection for example; dtypes float32, float64 or bfloat16.
AttentionOutput attention(const Tensor& q_BTHD, const Tensor& k_BSHD, const Tensor& v_BSHD,
                          const AttentionOptions& options = {});

// The same for the output of one projection, [B, T, 3 H D]: all queries, then keys, then values.
// Its gradient is one tensor, written in place.
AttentionOutput packed_attention(const Tensor& qkv_BTX, std::int64_t num_heads,
                                 const AttentionOptions& options = {});

}  // namespace fsdptrain::ops
