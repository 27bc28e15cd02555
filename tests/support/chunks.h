#pragma once

#include <vector>

#include "runtime/nn/flat_chunk.h"
#include "tests/support/grad_check.h"

namespace fsdptrain::testing {

// A chunk of three segments with gaps before, between and behind them; the gaps are zero. The
// middle one has no decay and half the learning rate; `length` elements each but the first.
inline nn::FlatChunk chunk_of(std::int64_t length, DType dtype, std::uint64_t seed) {
  nn::FlatChunk chunk;
  const std::int64_t total = 7 + 5 + 3 + 2 * length + 11;
  chunk.parameters = Tensor::zeros({total}, dtype);
  chunk.gradients = Tensor::zeros({total}, dtype);
  chunk.segments = {
      {.name = "first", .begin = 7, .end = 12},
      {.name = "middle", .begin = 15, .end = 15 + length, .lr_scale = 0.5, .decay = false},
      {.name = "last", .begin = 15 + length, .end = 15 + 2 * length}};
  for (const nn::Segment& segment : chunk.segments) {
    const Tensor values = random_tensor({segment.end - segment.begin}, seed);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      chunk.parameters.set_item(segment.begin + i, values.item(i));
    }
  }
  return chunk;
}

// New gradients in [-1, 1] in all segments.
inline void set_gradients(nn::FlatChunk& chunk, std::uint64_t seed) {
  for (const nn::Segment& segment : chunk.segments) {
    const Tensor values = random_tensor({segment.end - segment.begin}, seed++);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      chunk.gradients.set_item(segment.begin + i, values.item(i));
    }
  }
}

}  // namespace fsdptrain::testing
