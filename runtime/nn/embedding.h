#pragma once

#include "runtime/nn/module.h"

namespace fsdptrain::nn {

// Rows of weight[vocabulary, features] picked by integer indices.
class Embedding final : public Module {
 public:
  struct Options {
    std::int64_t vocabulary = 0;
    std::int64_t features = 0;
    double standard_deviation = 0.02;
  };

  explicit Embedding(const Options& options);

  // For a head that shares it. Only within the forward of a module that holds this one.
  const Tensor& weight() const { return weight_; }

 private:
  Tensor forward(const Tensor& indices) override;

  Tensor weight_;
};

}  // namespace fsdptrain::nn
