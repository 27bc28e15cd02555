#pragma once

#include "runtime/nn/module.h"
#include "runtime/ops/norm.h"

namespace fsdptrain::nn {

// Layer normalisation over the last dimension, with weight and bias.
class LayerNorm final : public Module {
 public:
  struct Options {
    std::int64_t features = 0;
    bool bias = true;
    double eps = 1e-5;
  };

  explicit LayerNorm(const Options& options);

  // The sum of both and its norm, in one pass.
  ops::AddNormOutput add(const Tensor& x, const Tensor& residual);

 private:
  Tensor forward(const Tensor& x) override;

  Tensor weight_;
  Tensor bias_;  // undefined without bias
  double eps_;
};

}  // namespace fsdptrain::nn
