#pragma once

#include <cstddef>

#include "kernels/attention.h"

namespace fsdptrain::kernels {

// Tiles are of this many queries and keys, and of heads padded to a multiple of attention_pad(),
// which is one of the widest tile in tile_product.h.
inline constexpr std::int64_t kAttentionBlock = 64;
constexpr std::int64_t attention_pad(Isa isa) {
  return isa == Isa::Avx512 ? 32 : 16;
}

// So many blocks of queries share the packing of a block of keys in forward.
inline constexpr std::int64_t kAttentionForwardBlocks = 4;

// Elements of scratch for one thread, with padded sizes.
constexpr std::int64_t attention_forward_scratch(std::int64_t head_size) {
  return kAttentionBlock * ((2 + 2 * kAttentionForwardBlocks) * head_size + kAttentionBlock);
}
constexpr std::int64_t attention_backward_scratch(std::int64_t keys, std::int64_t head_size) {
  return kAttentionBlock * (5 * head_size + 2 * kAttentionBlock) + 4 * keys * head_size;
}

// The least and the largest document of a block of tokens: blocks whose ranges are apart see
// nothing of each other.
struct DocumentRange {
  std::int64_t least;
  std::int64_t largest;
};
constexpr std::int64_t document_blocks(std::int64_t tokens) {
  return (tokens + kAttentionBlock - 1) / kAttentionBlock;
}

namespace cpu {

// `ranges`: room for one of each block of each sample, or null without documents.
template <Isa isa>
void attention_forward(const Launch& launch, const AttentionForward& args, DocumentRange* ranges,
                       std::byte* scratch);
template <Isa isa>
void attention_backward(const Launch& launch, const AttentionBackward& args, DocumentRange* ranges,
                        std::byte* scratch);

}  // namespace cpu
}  // namespace fsdptrain::kernels
