#include "runtime/nn/rms_norm.h"

namespace fsdptrain::nn {

RmsNorm::RmsNorm(const Options& options)
    : weight_(unplaced_parameter({options.features})), eps_(options.eps) {
  register_parameter("weight", weight_, {.init = Init::constant(1), .decay = false});
}

ops::AddNormOutput RmsNorm::add(const Tensor& x, const Tensor& residual) {
  const Tensors outputs = through_hooks({x, residual}, [this](const Tensors& inputs) {
    const auto [sum, normalized] = ops::add_rms_norm(inputs[0], inputs[1], weight_, eps_);
    return Tensors{sum, normalized};
  });
  return {outputs[0], outputs[1]};
}

Tensor RmsNorm::forward(const Tensor& x) {
  return ops::rms_norm(x, weight_, eps_);
}

}  // namespace fsdptrain::nn
