#pragma once

#include <cmath>

namespace fsdptrain::testing {

// The larger of two numbers; NaN if either is NaN, so that the worst of many differences says so
// wherever it was met. std::max gives the first argument then, and a later number hides the NaN.
inline double max_or_nan(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

}  // namespace fsdptrain::testing
