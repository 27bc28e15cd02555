#include "runtime/nn/linear.h"

#include "runtime/ops/linear.h"

namespace fsdptrain::nn {

Linear::Linear(const Options& options) : weight_(unplaced_parameter({options.out, options.in})) {
  register_parameter("weight", weight_, {.init = Init::normal(options.standard_deviation)});
  if (options.bias) {
    bias_ = unplaced_parameter({options.out});
    register_parameter("bias", bias_, {.init = Init::constant(0), .decay = false});
  }
}

Tensor Linear::gelu(const Tensor& x, ops::GeluForm form) {
  return through_hooks({x},
                       [this, form](const Tensors& inputs) {
                         return Tensors{ops::linear_gelu(inputs[0], weight_, bias_, form)};
                       })
      .front();
}

Tensor Linear::forward(const Tensor& x) {
  return ops::linear(x, weight_, bias_);
}

}  // namespace fsdptrain::nn
