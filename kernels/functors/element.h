#pragma once

#include <cstdint>

#include "kernels/functors/variant.h"
#include "runtime/base/half.h"

// How kernels read and write elements: 16-bit floats are widened on load and rounded on store,
// so that no formula mentions them.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// The type a formula computes with: float for float and the 16-bit floats, else the type itself.
template <class T>
struct OpMathOf {
  using Type = T;
};
template <>
struct OpMathOf<bfloat16> {
  using Type = float;
};
template <>
struct OpMathOf<float16> {
  using Type = float;
};
template <class T>
using OpMath = typename OpMathOf<T>::Type;

template <class T>
FSDPTRAIN_HOST_DEVICE OpMath<T> load(T x) {
  return x;
}
FSDPTRAIN_HOST_DEVICE float load(bfloat16 x) {
  return to_float(x);
}
FSDPTRAIN_HOST_DEVICE float load(float16 x) {
  return to_float(x);
}

// Rounds an op-math value to the element type T.
template <class T>
struct Store {
  template <class V>
  FSDPTRAIN_HOST_DEVICE static T to(V x) {
    return static_cast<T>(x);
  }
};
template <>
struct Store<bfloat16> {
  FSDPTRAIN_HOST_DEVICE static bfloat16 to(float x) { return to_bfloat16(x); }
};
template <>
struct Store<float16> {
  FSDPTRAIN_HOST_DEVICE static float16 to(float x) { return to_float16(x); }
};

template <class T>
inline constexpr bool kIsInteger = false;
template <>
inline constexpr bool kIsInteger<std::int64_t> = true;
template <>
inline constexpr bool kIsInteger<std::int32_t> = true;
template <>
inline constexpr bool kIsInteger<std::uint16_t> = true;
template <>
inline constexpr bool kIsInteger<std::uint8_t> = true;

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
