#pragma once

#include <vector>

#include "runtime/tensor/tensor.h"

namespace fsdptrain::testing {

// a[M, K] @ b[K, N] by three loops in T.
template <class T>
std::vector<double> naive_matmul(const Tensor& a, const Tensor& b) {
  const auto m = static_cast<std::size_t>(a.size(0));
  const auto k = static_cast<std::size_t>(a.size(1));
  const auto n = static_cast<std::size_t>(b.size(1));
  const std::vector<double> left = a.to_vector();
  const std::vector<double> right = b.to_vector();
  std::vector<T> sums(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t p = 0; p < k; ++p) {
      for (std::size_t j = 0; j < n; ++j) {
        sums[i * n + j] += static_cast<T>(left[i * k + p]) * static_cast<T>(right[p * n + j]);
      }
    }
  }
  return {sums.begin(), sums.end()};
}

// naive_matmul in the next wider type, of operands as they are after rounding.
inline std::vector<double> product_oracle(const Tensor& a, const Tensor& b) {
  return a.dtype() == DType::Float64 ? naive_matmul<long double>(a, b) : naive_matmul<double>(a, b);
}

// What a product may be off by, relative to max(1, |value|). Of sums of `depth` products below 1:
// each addition rounds a partial sum of about sqrt(depth).
inline double product_tolerance(DType dtype, std::int64_t depth) {
  const double rounding = dtype == DType::Float64 ? 0x1p-53 : 0x1p-24;
  const double storing = dtype == DType::BFloat16 ? 0x1p-8 : 0;
  return storing + rounding * static_cast<double>(4 + depth);
}

}  // namespace fsdptrain::testing
