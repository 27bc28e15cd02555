#pragma once

#include <cstdint>

#include "kernels/functors/variant.h"

// What the elementary functions are made of.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {
namespace math {

// One rounding where the hardware has it, else a product and a sum: libm's software fma costs
// more than a hundred times as much.
FSDPTRAIN_HOST_DEVICE float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__CUDACC__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

FSDPTRAIN_HOST_DEVICE double fma(double a, double b, double c) {
#if defined(__FMA__) || defined(__CUDACC__)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

FSDPTRAIN_HOST_DEVICE float sqrt(float x) {
  return __builtin_sqrtf(x);
}
FSDPTRAIN_HOST_DEVICE double sqrt(double x) {
  return __builtin_sqrt(x);
}
FSDPTRAIN_HOST_DEVICE float rsqrt(float x) {
  return 1.0f / sqrt(x);
}
FSDPTRAIN_HOST_DEVICE double rsqrt(double x) {
  return 1.0 / sqrt(x);
}

// The binary format of T. Bits are unsigned and shifts logical: AVX2 has no others for 64 bits.
template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr Bits kBias = 127;
  static constexpr Bits kInfinity = 0x7f800000u;
  static constexpr Bits kNan = 0x7fc00000u;
};
template <>
struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr Bits kBias = 1023;
  static constexpr Bits kInfinity = 0x7ff0000000000000u;
  static constexpr Bits kNan = 0x7ff8000000000000u;
};
template <class T>
using Bits = typename Format<T>::Bits;

template <class T>
FSDPTRAIN_HOST_DEVICE Bits<T> to_bits(T x) {
  return __builtin_bit_cast(Bits<T>, x);
}
template <class T>
FSDPTRAIN_HOST_DEVICE T from_bits(Bits<T> bits) {
  return __builtin_bit_cast(T, bits);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T abs(T x) {
  return from_bits<T>(to_bits(x) & ~(Bits<T>{1} << (sizeof(T) * 8 - 1)));
}

// |magnitude| with the sign of x.
template <class T>
FSDPTRAIN_HOST_DEVICE T copy_sign(T magnitude, T x) {
  constexpr Bits<T> kSign = Bits<T>{1} << (sizeof(T) * 8 - 1);
  return from_bits<T>((to_bits(magnitude) & ~kSign) | (to_bits(x) & kSign));
}

// c0 + x (c1 + x (c2 + ...)). The coefficients of this folder are minimax fits (Remez exchange
// in 50 decimal digits, rounded to T), with the weight that makes the stated bound one on the
// function's result.
template <class T>
FSDPTRAIN_HOST_DEVICE T polynomial(T, T c0) {
  return c0;
}
template <class T, class... Rest>
FSDPTRAIN_HOST_DEVICE T polynomial(T x, T c0, Rest... rest) {
  return fma(x, polynomial(x, rest...), c0);
}

}  // namespace math
}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
