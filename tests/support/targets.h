#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/ops/loss.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/max_or_nan.h"

namespace fsdptrain::testing {

// Every fifth target is ignored; the first and last class occur.
inline Tensor some_targets(const Shape& shape, std::int64_t classes) {
  Tensor targets = Tensor::empty(shape, DType::Int64);
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    const std::int64_t target = i == 0 ? classes - 1 : (i * 7919) % classes;
    targets.set_item(i, static_cast<double>(i % 5 == 3 ? kIgnoredTarget : target));
  }
  return targets;
}

// The largest magnitude of actual - expected, NaN if one is.
inline double worst_difference(const Tensor& actual, const std::vector<double>& expected) {
  const std::vector<double> values = actual.to_vector();
  REQUIRE(values.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    worst = max_or_nan(worst, std::abs(values[i] - expected[i]));
  }
  return worst;
}

}  // namespace fsdptrain::testing
