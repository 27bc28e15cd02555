#include "runtime/base/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include <doctest/doctest.h>

namespace fsdptrain {
namespace {

// The two formats by their definition, in double arithmetic, which is exact here.
struct BFloat16Format {
  using Type = bfloat16;
  static constexpr int kMantissa = 7;
  static constexpr int kBias = 127;
  static Type round(float x) { return to_bfloat16(x); }
};
struct Float16Format {
  using Type = float16;
  static constexpr int kMantissa = 10;
  static constexpr int kBias = 15;
  static Type round(float x) { return to_float16(x); }
};

template <class Format>
double value_of(std::uint16_t bits) {
  const int mantissa = bits & ((1 << Format::kMantissa) - 1);
  const int exponent = (bits >> Format::kMantissa) & (2 * Format::kBias + 1);
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  if (exponent == 2 * Format::kBias + 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << Format::kMantissa);
  const int scale = (exponent == 0 ? 1 : exponent) - Format::kBias - Format::kMantissa;
  return sign * std::ldexp(whole, scale);
}

// x rounded to nearest, ties to even, at the spacing of the format.
template <class Format>
double rounded(float x) {
  if (x == 0 || std::isinf(x)) {
    return x;
  }
  const int exponent = std::max(std::ilogb(x), 1 - Format::kBias);
  const double spacing = std::ldexp(1.0, exponent - Format::kMantissa);
  const double result = std::nearbyint(static_cast<double>(x) / spacing) * spacing;
  const double limit = std::ldexp(1.0, Format::kBias + 1);
  return std::fabs(result) < limit ? result
                                   : std::copysign(std::numeric_limits<double>::infinity(), x);
}

// Whether the conversion of x gives the value that it should, with its sign.
template <class Format>
bool rounds_right(float x) {
  const std::uint16_t bits = Format::round(x).bits;
  const double actual = value_of<Format>(bits);
  if (std::isnan(x)) {
    return std::isnan(actual);
  }
  return actual == rounded<Format>(x) && (bits >> 15 != 0) == std::signbit(x);
}

}  // namespace

TEST_SUITE("runtime/base/half") {
  TEST_CASE_TEMPLATE("every pattern converts to its value and back", Format, BFloat16Format,
                     Float16Format) {
    for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
      const auto bits = static_cast<std::uint16_t>(pattern);
      const float x = to_float(typename Format::Type{bits});
      const double expected = value_of<Format>(bits);
      const std::uint16_t back = Format::round(x).bits;
      if (std::isnan(expected)) {
        // NaN becomes quiet and keeps its sign and the rest of its payload.
        const auto quiet = static_cast<std::uint16_t>(bits | 1u << (Format::kMantissa - 1));
        CAPTURE(bits);
        REQUIRE(std::isnan(x));
        REQUIRE(back == quiet);
      } else if (x != expected || std::signbit(x) != (bits >> 15 != 0) || back != bits) {
        FAIL("pattern ", bits, " is ", x, ", expected ", expected, ", back ", back);
      }
    }
  }

  TEST_CASE_TEMPLATE("floats round to nearest, ties to even", Format, BFloat16Format,
                     Float16Format) {
    std::size_t wrong = 0;
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1009) {
      const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      wrong += rounds_right<Format>(x) ? 0u : 1u;
    }
    CHECK(wrong == 0);
  }

  TEST_CASE_TEMPLATE("midpoints and their neighbours round right", Format, BFloat16Format,
                     Float16Format) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const auto largest = static_cast<std::uint32_t>((2 * Format::kBias + 1) << Format::kMantissa);
    std::size_t wrong = 0;
    for (std::uint32_t pattern = 0; pattern < largest; ++pattern) {
      const double low = value_of<Format>(static_cast<std::uint16_t>(pattern));
      // Above the largest finite value, the next power of two stands for infinity.
      const double high = pattern + 1 < largest
                              ? value_of<Format>(static_cast<std::uint16_t>(pattern + 1))
                              : std::ldexp(1.0, Format::kBias + 1);
      const auto middle = static_cast<float>((low + high) / 2);
      for (const float x : {middle, std::nextafter(middle, kInf), std::nextafter(middle, -kInf)}) {
        wrong += rounds_right<Format>(x) && rounds_right<Format>(-x) ? 0u : 1u;
      }
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("named values have their known bits") {
    CHECK(to_bfloat16(1.0f).bits == 0x3f80);
    CHECK(to_bfloat16(3.4e38f).bits == 0x7f80);
    CHECK(to_bfloat16(-0.0f).bits == 0x8000);
    CHECK(to_bfloat16(1.00390625f).bits == 0x3f80);  // a tie, to the even 1
    CHECK(to_bfloat16(1.01171875f).bits == 0x3f82);  // a tie, to the even 1.015625
    CHECK(to_float16(1.0f).bits == 0x3c00);
    CHECK(to_float16(65504.0f).bits == 0x7bff);
    CHECK(to_float16(65520.0f).bits == 0x7c00);
    CHECK(to_float16(0x1p-24f).bits == 0x0001);
    CHECK(to_float16(0x1p-25f).bits == 0x0000);  // a tie, to 0
    CHECK(to_float16(-0.0f).bits == 0x8000);
  }
}

}  // namespace fsdptrain
