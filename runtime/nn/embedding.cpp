#include "runtime/nn/embedding.h"

#include "runtime/ops/embedding.h"

namespace fsdptrain::nn {

Embedding::Embedding(const Options& options)
    : weight_(unplaced_parameter({options.vocabulary, options.features})) {
  register_parameter("weight", weight_, {.init = Init::normal(options.standard_deviation)});
}

Tensor Embedding::forward(const Tensor& indices) {
  return ops::embedding(weight_, indices);
}

}  // namespace fsdptrain::nn
