#pragma once

#include "kernels/functors/element.h"
#include "kernels/functors/math.h"
#include "kernels/functors/tags.h"

// apply(tag, inputs...): the formulas of arithmetic, comparison and selection.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Integers wrap modulo 2^n; unsigned arithmetic says so without undefined behaviour.
template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Add, T a, T b) {
  if constexpr (kIsInteger<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Subtract, T a, T b) {
  if constexpr (kIsInteger<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
  } else {
    return a - b;
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Multiply, T a, T b) {
  if constexpr (kIsInteger<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Divide, T a, T b) {
  return a / b;
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Negate, T x) {
  if constexpr (kIsInteger<T>) {
    return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(x));
  } else {
    return -x;
  }
}

// NaN propagates and -0 < +0.
template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Maximum, T a, T b) {
  if constexpr (kIsInteger<T>) {
    return a < b ? b : a;
  } else {
    const T tie = __builtin_signbit(a) ? b : a;
    const T larger = a > b ? a : (a < b ? b : tie);
    return __builtin_isnan(a) ? a : (__builtin_isnan(b) ? b : larger);
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Minimum, T a, T b) {
  if constexpr (kIsInteger<T>) {
    return b < a ? b : a;
  } else {
    const T tie = __builtin_signbit(a) ? a : b;
    const T smaller = a < b ? a : (a > b ? b : tie);
    return __builtin_isnan(a) ? a : (__builtin_isnan(b) ? b : smaller);
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Affine f, T x) {
  return math::fma(x, static_cast<T>(f.factor), static_cast<T>(f.term));
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(AddScaled f, T a, T b) {
  return math::fma(b, static_cast<T>(f.factor), a);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Lerp f, T a, T b) {
  return math::fma(b - a, static_cast<T>(f.weight), a);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Square, T x) {
  return x * x;
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Sqrt, T x) {
  return math::sqrt(x);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(SqrtBackward, T dy, T y) {
  return dy / (y + y);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Rsqrt, T x) {
  return math::rsqrt(x);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(RsqrtBackward, T dy, T x) {
  return T(-0.5) * dy * math::rsqrt(x) / x;
}

template <class T>
FSDPTRAIN_HOST_DEVICE std::uint8_t apply(Equal, T a, T b) {
  return a == b;
}

template <class T>
FSDPTRAIN_HOST_DEVICE std::uint8_t apply(NotEqual, T a, T b) {
  return a != b;
}

template <class T>
FSDPTRAIN_HOST_DEVICE std::uint8_t apply(Less, T a, T b) {
  return a < b;
}

template <class T>
FSDPTRAIN_HOST_DEVICE std::uint8_t apply(LessEqual, T a, T b) {
  return a <= b;
}

template <class T>
FSDPTRAIN_HOST_DEVICE std::uint8_t apply(Greater, T a, T b) {
  return a > b;
}

template <class T>
FSDPTRAIN_HOST_DEVICE std::uint8_t apply(GreaterEqual, T a, T b) {
  return a >= b;
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Where, std::uint8_t condition, T a, T b) {
  return condition != 0 ? a : b;
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
