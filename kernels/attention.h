#pragma once

#include <cstddef>

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

// Tiles are of this many queries and keys, and of heads padded to a multiple of kAttentionPad.
inline constexpr std::int64_t kAttentionBlock = 64;
inline constexpr std::int64_t kAttentionPad = 16;

// So many blocks of queries share the packing of a block of keys in forward.
inline constexpr std::int64_t kAttentionForwardBlocks = 4;

// Elements of scratch for one thread, with padded sizes.
constexpr std::int64_t attention_forward_scratch(std::int64_t head_size) {
  return kAttentionBlock * ((2 + 2 * kAttentionForwardBlocks) * head_size + kAttentionBlock);
}
constexpr std::int64_t attention_backward_scratch(std::int64_t keys, std::int64_t head_size) {
  return kAttentionBlock * (5 * head_size + 2 * kAttentionBlock) + 4 * keys * head_size;
}

namespace cpu {
template <Isa isa>
void attention_forward(const Launch& launch, const AttentionForward& args, std::byte* scratch);
template <Isa isa>
void attention_backward(const Launch& launch, const AttentionBackward& args, std::byte* scratch);
}  // namespace cpu

void attention_forward(const Launch& launch, const AttentionForward& args);
void attention_backward(const Launch& launch, const AttentionBackward& args);

}  // namespace fsdptrain::kernels
