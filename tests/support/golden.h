#pragma once

#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "checkpoint/safetensors/file.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/max_or_nan.h"

namespace fsdptrain::testing {

// A file of values that PyTorch computed (tests/golden/README.md).
class Golden {
 public:
  explicit Golden(const std::string& file)
      : reader_(std::string(FSDPTRAIN_GOLDEN_DIR) + "/" + file) {}

  Tensor tensor(const std::string& name) const {
    const checkpoint::TensorEntry& entry = reader_.find(name);
    Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
    reader_.read(entry, tensor.mutable_bytes());
    return tensor;
  }

  const std::string& text(const std::string& key) const { return reader_.metadata().at(key); }
  double number(const std::string& key) const { return std::stod(text(key)); }
  std::int64_t integer(const std::string& key) const { return std::stoll(text(key)); }

 private:
  checkpoint::SafetensorsReader reader_;
};

inline double norm(const Tensor& x) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    sum += x.item(i) * x.item(i);
  }
  return std::sqrt(sum);
}

inline double max_abs(const Tensor& x) {
  double largest = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    largest = max_or_nan(largest, std::abs(x.item(i)));
  }
  return largest;
}

// The norm, and the largest magnitude, of a - b; NaN if one is.
inline double norm_of_difference(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    sum += (a.item(i) - b.item(i)) * (a.item(i) - b.item(i));
  }
  return std::sqrt(sum);
}

inline double max_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    largest = max_or_nan(largest, std::abs(a.item(i) - b.item(i)));
  }
  return largest;
}

}  // namespace fsdptrain::testing
