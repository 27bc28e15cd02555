#pragma once

#include <cstdint>

#include "kernels/functors/element.h"
#include "kernels/functors/variant.h"

// From one element type to another: what copy() and accumulate() of kernels/copy.h do to an
// element.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// The nearest float below or above x of which the last bit is set, or x itself if it is a float:
// a later rounding to fewer bits then sees on which side of a tie x lies.
FSDPTRAIN_HOST_DEVICE float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  auto bits = __builtin_bit_cast(std::uint32_t, nearest);
  // Inexact with an even last bit: one step towards x, whose magnitude lies above or below.
  const bool even = (bits & 1u) == 0;
  const bool away = (x > back) == (x > 0);
  const std::uint32_t step = away ? bits + 1u : bits - 1u;
  const bool inexact = x != back && !__builtin_isnan(x) && (bits & 0x7fffffffu) < 0x7f800000u;
  bits = inexact && even ? step : bits;
  return __builtin_bit_cast(float, bits);
}

template <class To, class From>
FSDPTRAIN_HOST_DEVICE To convert(From x) {
  const auto value = load(x);
  if constexpr (kIsInteger<To> && !kIsInteger<From>) {
    // The bounds as floating values: 2^n is exact, so `value < limit` implies that it fits.
    constexpr int kValueBits = static_cast<int>(sizeof(To)) * 8 - (To(-1) < To(0) ? 1 : 0);
    using V = OpMath<From>;
    const V limit = static_cast<V>(2.0) * static_cast<V>(std::uint64_t{1} << (kValueBits - 1));
    const V lowest = To(-1) < To(0) ? -limit : V(0);
    constexpr To kMax = static_cast<To>((std::uint64_t{1} << (kValueBits - 1)) - 1 +
                                        (std::uint64_t{1} << (kValueBits - 1)));
    constexpr To kMin = To(-1) < To(0) ? static_cast<To>(-kMax - 1) : To(0);
    const bool inside = value >= lowest && value < limit;
    const To clamped = value >= limit ? kMax : (value < lowest ? kMin : To(0));
    return inside ? static_cast<To>(inside ? value : V(0)) : clamped;
  } else if constexpr (sizeof(To) == 2 && !kIsInteger<To> && sizeof(value) >= 4 &&
                       !__is_same(decltype(value), const float)) {
    // To a 16-bit float by way of float: rounded once, because the first step rounds to odd.
    return Store<To>::to(round_to_odd(static_cast<double>(value)));
  } else {
    return Store<To>::to(static_cast<OpMath<To>>(value));
  }
}

// a + b in the op-math type of a, rounded to a's type.
template <class To, class From>
FSDPTRAIN_HOST_DEVICE To add(To a, From b) {
  return Store<To>::to(load(a) + static_cast<OpMath<To>>(load(b)));
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
