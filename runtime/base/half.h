#pragma once

#include <cstdint>

#include "runtime/base/host_device.h"

// 16-bit floating storage types: conversions only, computation happens in float.
namespace fsdptrain {

// The upper half of a float: 8 exponent bits, 7 mantissa bits.
// NOLINTNEXTLINE(readability-identifier-naming): the name of the format, as of int32_t.
struct bfloat16 {
  std::uint16_t bits;
};

// IEEE 754 binary16: 5 exponent bits, 10 mantissa bits.
// NOLINTNEXTLINE(readability-identifier-naming): see bfloat16.
struct float16 {
  std::uint16_t bits;
};

FSDPTRAIN_HOST_DEVICE float to_float(bfloat16 x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN (quiet, sign and upper payload kept).
FSDPTRAIN_HOST_DEVICE bfloat16 to_bfloat16(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t result = is_nan ? (bits | 0x00400000u) : rounded;
  return {static_cast<std::uint16_t>(result >> 16)};
}

FSDPTRAIN_HOST_DEVICE float to_float(float16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  // Subnormals: the integer mantissa times 2^-24 is exact in float.
  const float small = static_cast<float>(magnitude) * 0x1p-24f;
  const std::uint32_t normal = (magnitude << 13) + (112u << 23);
  const std::uint32_t special = 0x7f800000u | (magnitude << 13);
  const std::uint32_t bits = magnitude >= 0x7c00u  ? special
                             : magnitude < 0x0400u ? __builtin_bit_cast(std::uint32_t, small)
                                                   : normal;
  return __builtin_bit_cast(float, sign | bits);
}

// Rounds to nearest, ties to even; overflow gives infinity, NaN stays NaN.
FSDPTRAIN_HOST_DEVICE float16 to_float16(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the result is subnormal: adding 0.5 lets the float adder round at 2^-24.
  const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
  const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000u;
  const std::uint32_t normal =
      (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t special =
      magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x03ffu) : 0x7c00u;
  const std::uint32_t result = magnitude >= 0x47800000u  ? special
                               : magnitude < 0x38800000u ? subnormal
                                                         : normal;
  return {static_cast<std::uint16_t>(sign | result)};
}

}  // namespace fsdptrain
