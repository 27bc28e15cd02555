#pragma once

#include <cstdint>

#include "kernels/functors/variant.h"
#include "runtime/base/view.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Views of one shape as an outer index space and an inner row, neighbouring dimensions merged
// where every operand allows it.
template <int operands>
struct StridedLoop {
  int dims = 0;  // outer dimensions
  std::int64_t outer = 1;
  std::int64_t sizes[kMaxDims];
  std::int64_t strides[operands][kMaxDims];
  std::int64_t inner = 1;
  std::int64_t inner_strides[operands];
};

template <int operands>
FSDPTRAIN_HOST_DEVICE StridedLoop<operands> make_loop(const View* const (&views)[operands]) {
  StridedLoop<operands> loop;
  // Merged dimensions, innermost first.
  std::int64_t sizes[kMaxDims];
  std::int64_t strides[operands][kMaxDims];
  int merged = 0;
  for (int dim = views[0]->dims - 1; dim >= 0; --dim) {
    const std::int64_t size = views[0]->sizes[dim];
    if (size == 1) {
      continue;
    }
    bool fits = merged > 0;
    for (int k = 0; k < operands && fits; ++k) {
      fits = views[k]->strides[dim] == strides[k][merged - 1] * sizes[merged - 1];
    }
    if (fits) {
      sizes[merged - 1] *= size;
      continue;
    }
    sizes[merged] = size;
    for (int k = 0; k < operands; ++k) {
      strides[k][merged] = views[k]->strides[dim];
    }
    ++merged;
  }
  loop.inner = merged > 0 ? sizes[0] : 1;
  for (int k = 0; k < operands; ++k) {
    loop.inner_strides[k] = merged > 0 ? strides[k][0] : 1;
  }
  loop.dims = merged > 1 ? merged - 1 : 0;
  for (int dim = 0; dim < loop.dims; ++dim) {
    loop.sizes[dim] = sizes[dim + 1];
    loop.outer *= sizes[dim + 1];
    for (int k = 0; k < operands; ++k) {
      loop.strides[k][dim] = strides[k][dim + 1];
    }
  }
  return loop;
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
