#include "runtime/nn/layer_norm.h"

namespace fsdptrain::nn {

LayerNorm::LayerNorm(const Options& options)
    : weight_(unplaced_parameter({options.features})), eps_(options.eps) {
  register_parameter("weight", weight_, {.init = Init::constant(1), .decay = false});
  if (options.bias) {
    bias_ = unplaced_parameter({options.features});
    register_parameter("bias", bias_, {.init = Init::constant(0), .decay = false});
  }
}

ops::AddNormOutput LayerNorm::add(const Tensor& x, const Tensor& residual) {
  const Tensors outputs = through_hooks({x, residual}, [this](const Tensors& inputs) {
    const auto [sum, normalized] = ops::add_layer_norm(inputs[0], inputs[1], weight_, bias_, eps_);
    return Tensors{sum, normalized};
  });
  return {outputs[0], outputs[1]};
}

Tensor LayerNorm::forward(const Tensor& x) {
  return ops::layer_norm(x, weight_, bias_, eps_);
}

}  // namespace fsdptrain::nn
