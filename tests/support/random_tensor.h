#pragma once

#include "runtime/base/random.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::testing {

// A tensor of values in [-range, range] keyed by `seed`, float64 unless said otherwise.
inline Tensor random_tensor(const Shape& shape, std::uint64_t seed, double range = 1.0,
                            DType dtype = DType::Float64) {
  Tensor tensor = Tensor::empty(shape, dtype);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const auto word = philox(static_cast<std::uint64_t>(i), 0, seed).word[0];
    tensor.set_item(i, range * (2 * to_unit_interval(word) - 1));
  }
  return tensor;
}

}  // namespace fsdptrain::testing
