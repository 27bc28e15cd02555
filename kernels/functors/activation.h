#pragma once

#include "kernels/functors/math.h"
#include "kernels/functors/tags.h"

// apply(tag, inputs...): transcendental functions, activations and their derivatives.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Exp, T x) {
  return math::exp(x);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Log, T x) {
  return math::log(x);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Tanh, T x) {
  return math::tanh(x);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(TanhBackward, T dy, T y) {
  return dy * math::fma(-y, y, T(1));
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Erf, T x) {
  return math::erf(x);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(ErfBackward, T dy, T x) {
  constexpr T kTwoOverSqrtPi = T(1.12837916709551257390);
  return dy * kTwoOverSqrtPi * math::exp(-x * x);
}

// GELU with the Gaussian distribution function: x * (1 + erf(x / sqrt 2)) / 2
// (Hendrycks and Gimpel, arXiv 1606.08415).
template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Gelu, T x) {
  constexpr T kSqrtHalf = T(0.70710678118654752440);
  return T(0.5) * x * (T(1) + math::erf(x * kSqrtHalf));
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(GeluBackward, T dy, T x) {
  constexpr T kSqrtHalf = T(0.70710678118654752440);
  constexpr T kInvSqrtTwoPi = T(0.39894228040143267794);
  const T cdf = T(0.5) * (T(1) + math::erf(x * kSqrtHalf));
  const T density = kInvSqrtTwoPi * math::exp(T(-0.5) * x * x);
  return dy * math::fma(x, density, cdf);
}

// GELU by the hyperbolic tangent: x * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, GPT-2's.
template <class T>
FSDPTRAIN_HOST_DEVICE T apply(GeluTanh, T x) {
  constexpr T kSqrtTwoOverPi = T(0.79788456080286535588);
  constexpr T kCubic = T(0.044715);
  const T t = math::tanh(kSqrtTwoOverPi * x * math::fma(kCubic, x * x, T(1)));
  return T(0.5) * x * (T(1) + t);
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(GeluTanhBackward, T dy, T x) {
  constexpr T kSqrtTwoOverPi = T(0.79788456080286535588);
  constexpr T kCubic = T(0.044715);
  const T t = math::tanh(kSqrtTwoOverPi * x * math::fma(kCubic, x * x, T(1)));
  const T slope = kSqrtTwoOverPi * math::fma(T(3) * kCubic, x * x, T(1));
  return dy * T(0.5) * math::fma(x * math::fma(-t, t, T(1)), slope, T(1) + t);
}

// The logistic function of x and of -x. exp() of what is at most 0 neither overflows nor, in the
// sum, loses what is small.
template <class T>
struct Logistic {
  T of;
  T of_negative;
};
template <class T>
FSDPTRAIN_HOST_DEVICE Logistic<T> logistic(T x) {
  const T small = math::exp(-math::abs(x));
  const T larger = T(1) / (T(1) + small);
  const T smaller = small * larger;
  return {x < T(0) ? smaller : larger, x < T(0) ? larger : smaller};
}

// Where the logistic function is 0 or 1 in T: products with it need a finite factor, not infinity.
template <class T>
FSDPTRAIN_HOST_DEVICE T at_least_saturated(T x) {
  constexpr T kSaturated = math::ExpRange<T>::kLowest;
  return x < kSaturated ? kSaturated : x;
}

// x / (1 + exp(-x)) (Elfwing, Uchibe and Doya, arXiv 1702.03118).
template <class T>
FSDPTRAIN_HOST_DEVICE T apply(Silu, T x) {
  return at_least_saturated(x) * logistic(x).of;
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(SiluBackward, T dy, T x) {
  const Logistic<T> s = logistic(x);
  const T bounded = -at_least_saturated(-at_least_saturated(x));
  return dy * (s.of * math::fma(bounded, s.of_negative, T(1)));
}

// Times a linear unit: the product of SwiGLU (Shazeer, arXiv 2002.05202).
template <class T>
FSDPTRAIN_HOST_DEVICE T apply(SiluMul, T gate, T up) {
  return apply(Silu{}, gate) * up;
}

template <class T>
FSDPTRAIN_HOST_DEVICE T apply(SiluMulBackward, T dy, T gate, T up) {
  return apply(SiluBackward{}, dy * up, gate);
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
