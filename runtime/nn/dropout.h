#pragma once

#include "runtime/nn/module.h"

namespace fsdptrain::nn {

// Zeroes elements with probability p during training and scales the others by 1 / (1 - p).
class Dropout final : public Module {
 public:
  // `site` tells the dropouts of one model apart in the random keys.
  Dropout(double p, std::uint64_t site) : p_(p), site_(site) {}

 private:
  Tensor forward(const Tensor& x) override;

  double p_;
  std::uint64_t site_;
};

}  // namespace fsdptrain::nn
