#pragma once

#include "kernels/functors/math.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// The largest of some values and the sum of exp(value - max) over them, gathered piece by piece
// (Milakov and Gimelshein, arXiv 1805.02867). {} is no value at all. NaN and +infinity make the
// sum NaN.
template <class T>
struct OnlineSoftmax {
  T max = T(-__builtin_inf());
  T sum = T(0);
};

// What to subtract before exp(): where all values are -infinity, their exp() is to be 0, not NaN.
template <class T>
FSDPTRAIN_HOST_DEVICE T softmax_shift(T max) {
  return max == T(-__builtin_inf()) ? T(0) : max;
}

template <class T>
FSDPTRAIN_HOST_DEVICE OnlineSoftmax<T> combine(OnlineSoftmax<T> a, OnlineSoftmax<T> b) {
  const T max = a.max > b.max ? a.max : b.max;
  const T shift = softmax_shift(max);
  return {max, math::fma(a.sum, math::exp(a.max - shift), b.sum * math::exp(b.max - shift))};
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
