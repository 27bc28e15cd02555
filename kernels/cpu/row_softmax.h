#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/functors/online_softmax.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// The piece of a row that an online softmax takes at a time: it stays in the first-level cache.
inline constexpr std::int64_t kSoftmaxBlock = 1024;

// One instruction, unlike Maximum: a NaN that it passes over makes the sum NaN.
struct Larger {};
template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Larger, T a, T b) {
  return b > a ? b : a;
}

template <class T>
FSDPTRAIN_HOST_DEVICE OnlineSoftmax<OpMath<T>> row_softmax(const T* x, std::int64_t width) {
  using V = OpMath<T>;
  OnlineSoftmax<V> state;
  for (std::int64_t begin = 0; begin < width; begin += kSoftmaxBlock) {
    const T* block = x + begin;
    const std::int64_t count = min(kSoftmaxBlock, width - begin);
    const V max = fold_lanes<V>(
        Larger{}, state.max,
        count, [block](std::int64_t i) __attribute__((always_inline)) { return load(block[i]); });
    const V shift = softmax_shift(max);
    const V sum = sum_lanes<V>(
        count, [ block, shift ](std::int64_t i)
                   __attribute__((always_inline)) { return math::exp(load(block[i]) - shift); });
    state = combine(state, {max, sum});
  }
  return state;
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
