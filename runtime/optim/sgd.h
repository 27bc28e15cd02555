#pragma once

#include "runtime/optim/optimizer.h"

namespace fsdptrain::optim {

// Stochastic gradient descent with momentum, as PyTorch's: g += weight_decay * p;
// b = momentum * b + g; p -= lr * b.
class Sgd final : public Optimizer {
 public:
  struct Options {
    double momentum = 0;
    // Applied to segments with decay.
    double weight_decay = 0;
  };

  Sgd(const std::vector<nn::FlatChunk>& chunks, const Options& options);

  void step(std::vector<nn::FlatChunk>& chunks, double lr, const Tensor& gradient_scale) override;
  std::vector<State> states() const override;

 private:
  Options options_;
  std::size_t num_chunks_;
  // Empty where the momentum is 0.
  std::vector<Tensor> momentum_;
};

}  // namespace fsdptrain::optim
