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

}  // namespace fsdptrain::testing
