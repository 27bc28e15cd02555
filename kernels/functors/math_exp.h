#pragma once

#include "kernels/functors/math_core.h"

// exp, log and tanh.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {
namespace math {

// ln 2 in two parts; the first has enough trailing zeros that k * kHigh is exact for every
// exponent k.
template <class T>
struct Ln2;
template <>
struct Ln2<float> {
  static constexpr float kHigh = 0x1.62e4p-1f;
  static constexpr float kLow = 0x1.7f7d1cp-20f;
};
template <>
struct Ln2<double> {
  static constexpr double kHigh = 0x1.62e42fefa38p-1;
  static constexpr double kLow = 0x1.ef35793c7673p-45;
};

// (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2, with exp(r) to 2^-28 (float), 2^-63 (double).
FSDPTRAIN_HOST_DEVICE float exp_tail(float r) {
  return polynomial(r, 5e-01f, 1.6666518e-01f, 4.1666202e-02f, 8.369025e-03f, 1.3950726e-03f);
}
FSDPTRAIN_HOST_DEVICE double exp_tail(double r) {
  return polynomial(r, 0.5, 0.1666666666666668, 0.041666666666666706, 0.008333333333319854,
                    0.00138888888888648, 0.00019841269890914068, 2.480158736491262e-05,
                    2.7557239311784667e-06, 2.7557239078275115e-07, 2.5110739504607327e-08,
                    2.0925537424666165e-09);
}

// exp(x) where the exponent k of x = k ln 2 + r is in (-2 bias, bias + 1]. A sum with 1.5 times
// 2^mantissa rounds to an integer and leaves it in the low bits; 2 bias on top makes it positive.
// 2^k is applied in two halves: the first product is exact, the second rounds once, to infinity
// or to a subnormal where the result is one.
template <class T>
FSDPTRAIN_HOST_DEVICE T exp_in_range(T x) {
  constexpr int kMantissa = Format<T>::kMantissa;
  constexpr T kLog2E = T(1.44269504088896340736);
  constexpr T kRound = T(Bits<T>{3} << (kMantissa - 1)) + T(2 * Format<T>::kBias);
  const T shifted = fma(x, kLog2E, kRound);
  const T k = shifted - kRound;
  const T r = fma(-k, Ln2<T>::kLow, fma(-k, Ln2<T>::kHigh, x));
  const T fraction = T(1) + fma(r * r, exp_tail(r), r);
  const Bits<T> biased = to_bits(shifted);
  const Bits<T> half = biased >> 1;
  return fraction * from_bits<T>(half << kMantissa) * from_bits<T>((biased - half) << kMantissa);
}

// Beyond these exp is 0 or infinity in T.
template <class T>
struct ExpRange;
template <>
struct ExpRange<float> {
  static constexpr float kLowest = -105.0f;
  static constexpr float kHighest = 89.0f;
};
template <>
struct ExpRange<double> {
  static constexpr double kLowest = -746.0;
  static constexpr double kHighest = 710.0;
};

template <class T>
FSDPTRAIN_HOST_DEVICE T exp(T x) {
  const T above = x < ExpRange<T>::kLowest ? ExpRange<T>::kLowest : x;
  return exp_in_range(above > ExpRange<T>::kHighest ? ExpRange<T>::kHighest : above);
}

// log((1 + s) / (1 - s)) / s - 2, over z = s^2, for (1 + s) / (1 - s) in [sqrt(1/2), sqrt(2)],
// with the logarithm to 2^-29 (float), 2^-58 (double).
FSDPTRAIN_HOST_DEVICE float log_tail(float z) {
  return polynomial(z, 6.666674e-01f, 3.9981174e-01f, 2.9790074e-01f);
}
FSDPTRAIN_HOST_DEVICE double log_tail(double z) {
  return polynomial(z, 0.6666666666666679, 0.3999999999972636, 0.2857142868174589,
                    0.22222204172434395, 0.18183297534429402, 0.15320392581290615,
                    0.1473640087588429);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T log(T x) {
  constexpr int kMantissa = Format<T>::kMantissa;
  constexpr Bits<T> kOne = Format<T>::kBias << kMantissa;
  constexpr Bits<T> kSqrtHalf = __builtin_bit_cast(Bits<T>, T(0.70710678118654752440));
  constexpr T kInteger = T(Bits<T>{1} << kMantissa);
  constexpr T kLeastNormal = __builtin_bit_cast(T, Bits<T>{1} << kMantissa);
  const bool subnormal = x < kLeastNormal;
  const T normal = subnormal ? x * kInteger : x;

  // normal = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)). 2^mantissa plus a small integer has
  // that integer in its low bits.
  const Bits<T> shifted = to_bits(normal) + (kOne - kSqrtHalf);
  const Bits<T> integer = (shifted >> kMantissa) | to_bits(kInteger);
  const T k =
      from_bits<T>(integer) - (kInteger + T(Format<T>::kBias) + (subnormal ? T(kMantissa) : T(0)));
  const Bits<T> fraction = shifted & ((Bits<T>{1} << kMantissa) - 1);
  const T f = from_bits<T>(fraction + kSqrtHalf) - T(1);

  // log(1 + f) = 2s + s tail with s = f / (2 + f), and 2s = f - s f.
  const T s = f / (T(2) + f);
  const T z = s * s;
  const T correction = fma(s, fma(-z, log_tail(z), f), -k * Ln2<T>::kLow);
  const T finite = fma(k, Ln2<T>::kHigh, f - correction);

  const T infinity = from_bits<T>(Format<T>::kInfinity);
  const T at_most_zero = x == T(0) ? -infinity : from_bits<T>(Format<T>::kNan);
  const T positive = x == infinity ? infinity : finite;
  return x > T(0) ? positive : at_most_zero;
}

// (tanh(x) / x - 1) / x^2, over z = x^2, for |x| <= 0.55, with tanh to 2^-29 (float), 2^-60.
FSDPTRAIN_HOST_DEVICE float tanh_tail(float z) {
  return polynomial(z, -3.3333325e-01f, 1.3332818e-01f, -5.38727e-02f, 2.1144874e-02f,
                    -6.3669565e-03f);
}
FSDPTRAIN_HOST_DEVICE double tanh_tail(double z) {
  return polynomial(z, -0.3333333333333333, 0.13333333333331043, -0.053968253965972185,
                    0.021869488441551597, -0.008863233419181115, 0.0035920995426711845,
                    -0.0014555873653691322, 0.000588614707408079, -0.00023378727879975862,
                    8.38647822149316e-05, -1.9815662983443636e-05);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T tanh(T x) {
  const T magnitude = abs(x);
  const T z = x * x;
  const T small = fma(x * z, tanh_tail(z), x);
  // From 20 on tanh is 1 in both types.
  const T bounded = magnitude > T(20) ? T(20) : magnitude;
  const T large = T(1) - T(2) / (exp_in_range(bounded + bounded) + T(1));
  // Of -0, `small` is +0: the correction has the other sign.
  return copy_sign(magnitude <= T(0.55) ? small : large, x);
}

}  // namespace math
}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
