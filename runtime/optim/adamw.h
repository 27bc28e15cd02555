#pragma once

#include "runtime/optim/optimizer.h"

namespace fsdptrain::optim {

// AdamW (Loshchilov and Hutter, arXiv 1711.05101), in the form and order of operations of
// PyTorch: decay by lr * weight_decay, then p -= lr * m_hat / (sqrt(v_hat) + eps).
class AdamW final : public Optimizer {
 public:
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    // Applied to segments with decay.
    double weight_decay = 0.01;
  };

  AdamW(const std::vector<nn::FlatChunk>& chunks, const Options& options);

  void step(std::vector<nn::FlatChunk>& chunks, double lr, const Tensor& gradient_scale) override;
  std::vector<State> states() const override;

 private:
  Options options_;
  std::vector<Tensor> exp_avg_;
  std::vector<Tensor> exp_avg_sq_;
};

}  // namespace fsdptrain::optim
