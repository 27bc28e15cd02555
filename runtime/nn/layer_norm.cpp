#include "runtime/nn/layer_norm.h"

#include "runtime/ops/norm.h"

namespace fsdptrain::nn {

LayerNorm::LayerNorm(const Options& options)
    : weight_(unplaced_parameter({options.features})), eps_(options.eps) {
  register_parameter("weight", weight_, {.init = Init::constant(1), .decay = false});
  if (options.bias) {
    bias_ = unplaced_parameter({options.features});
    register_parameter("bias", bias_, {.init = Init::constant(0), .decay = false});
  }
}

Tensor LayerNorm::forward(const Tensor& x) {
  return ops::layer_norm(x, weight_, bias_, eps_);
}

}  // namespace fsdptrain::nn
