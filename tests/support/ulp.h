#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace fsdptrain::testing {

// The distance of a result to the exact value, in units in the last place of T at that value; of
// subnormals, in the least subnormal. Infinity counts as the first power of two out of range, and
// is infinitely far from a NaN.
template <class T>
double ulp_error(T actual, long double exact) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(actual) || std::isnan(exact)) {
    return std::isnan(actual) && std::isnan(exact) ? 0.0 : Limits::infinity();
  }
  const long double limit = std::ldexp(1.0L, Limits::max_exponent);
  const long double expected = std::clamp(exact, -limit, limit);
  const long double result = std::clamp(static_cast<long double>(actual), -limit, limit);
  int exponent = Limits::min_exponent;
  if (expected != 0) {
    std::frexp(expected, &exponent);
    exponent = std::max(exponent, Limits::min_exponent);
  }
  return static_cast<double>(std::fabs(result - expected) /
                             std::ldexp(1.0L, exponent - Limits::digits));
}

}  // namespace fsdptrain::testing
