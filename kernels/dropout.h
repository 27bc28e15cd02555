#pragma once

#include "runtime/base/view.h"

namespace fsdptrain::kernels {

// Which elements of a dense [samples, positions, features] are kept, as a function of their place
// alone: element (s, p, f) takes word f % 4 of
// philox({first_sample + s, p << 32 | f / 4}, key) and is kept if it is at least `threshold`.
struct DropoutMask {
  std::uint64_t key = 0;
  std::uint64_t first_sample = 0;
  // In [0, 2^32]; a word below it drops its element.
  std::uint64_t threshold = 0;
  // What kept elements are multiplied by.
  double scale = 1;
  std::int64_t samples = 0;
  std::int64_t positions = 0;
  std::int64_t features = 0;
};

// out = in * scale where the mask keeps the element, else 0; floating, dense, one dtype. Its
// derivative is the same function.
void dropout(const Launch& launch, const View& out, const View& in, const DropoutMask& mask);

}  // namespace fsdptrain::kernels
