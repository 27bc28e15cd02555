#pragma once

#include "runtime/nn/module.h"
#include "runtime/ops/activation.h"

namespace fsdptrain::nn {

// y[..., out] = x[..., in] @ weight[out, in]^T + bias[out]
class Linear final : public Module {
 public:
  struct Options {
    std::int64_t in = 0;
    std::int64_t out = 0;
    bool bias = true;
    // Of the weight, around 0; the bias starts at 0.
    double standard_deviation = 0.02;
  };

  explicit Linear(const Options& options);

  // For a head. Only within the forward of a module that holds this one.
  const Tensor& weight() const { return weight_; }

  // gelu of the output.
  Tensor gelu(const Tensor& x, ops::GeluForm form);

 private:
  Tensor forward(const Tensor& x) override;

  Tensor weight_;
  Tensor bias_;  // undefined without bias
};

}  // namespace fsdptrain::nn
