#pragma once

#include "kernels/cuda/simt.h"
#include "kernels/functors/strided_loop.h"

namespace fsdptrain::kernels::cuda {

// Threads of a block of the kernels that compute one element with each.
inline constexpr int kElementThreads = 256;

template <int operands>
FSDPTRAIN_HOST_DEVICE std::int64_t num_elements(const StridedLoop<operands>& loop) {
  return loop.outer * loop.inner;
}

// offsets[k] = where element `index` of the loop lies in operand k.
template <int operands>
FSDPTRAIN_HOST_DEVICE void find_offsets(std::int64_t (&offsets)[operands],
                                        const StridedLoop<operands>& loop, std::int64_t index) {
  for (int operand = 0; operand < operands; ++operand) {
    offsets[operand] = index % loop.inner * loop.inner_strides[operand];
  }
  std::int64_t rest = index / loop.inner;
  for (int dim = 0; dim < loop.dims; ++dim) {
    const std::int64_t position = rest % loop.sizes[dim];
    rest /= loop.sizes[dim];
    for (int operand = 0; operand < operands; ++operand) {
      offsets[operand] += position * loop.strides[operand][dim];
    }
  }
}

}  // namespace fsdptrain::kernels::cuda
