#pragma once

#include "runtime/nn/module.h"
#include "runtime/ops/norm.h"

namespace fsdptrain::nn {

// Division by the root of the mean square over the last dimension, with a weight.
class RmsNorm final : public Module {
 public:
  struct Options {
    std::int64_t features = 0;
    double eps = 1e-5;
  };

  explicit RmsNorm(const Options& options);

  // The sum of both and its norm, in one pass.
  ops::AddNormOutput add(const Tensor& x, const Tensor& residual);

 private:
  Tensor forward(const Tensor& x) override;

  Tensor weight_;
  double eps_;
};

}  // namespace fsdptrain::nn
