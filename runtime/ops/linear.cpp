#include "runtime/ops/linear.h"

#include "kernels/matmul.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/ops/dense.h"
#include "runtime/ops/matrix.h"
#include "runtime/ops/reduction.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::GradientTarget;
using autograd::record;
using autograd::SavedTensor;
using kernels::Activation;

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_factors("linear", x, weight);
  check<ShapeError>(x.dims() >= 1 && weight.dims() == 2 && x.size(-1) == weight.size(1),
                    "linear: x of shape {} does not fit weight [out, in] of shape {}", x.shape(),
                    weight.shape());
  if (bias.defined()) {
    check_factors("linear", x, bias);
    check<ShapeError>(bias.shape() == Shape{weight.size(0)},
                      "linear: bias of shape {} does not fit weight [out, in] of shape {}",
                      bias.shape(), weight.shape());
  }
}

// The product with its bias, and the activation of that where there is one.
std::vector<Tensor> compute(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            Activation activation) {
  Shape shape = x.shape();
  shape[x.dims() - 1] = weight.size(0);
  const auto run = [&] {
    std::vector<Tensor> outputs;
    const auto new_rows = [&] {
      outputs.push_back(Tensor::empty(shape, x.dtype(), x.device()));
      return views::reshape(outputs.back(), rows_shape(outputs.back()));
    };
    kernels::MatmulEpilogue epilogue{.activation = activation};
    const Tensor out = new_rows();
    const Tensor bias_dense = bias.defined() ? dense(bias) : Tensor();
    if (bias.defined()) {
      epilogue.bias = bias_dense.view();
      epilogue.has_bias = true;
    }
    if (activation != Activation::None) {
      epilogue.activated = new_rows().view();
    }
    multiply_into(out, as_rows(x), views::transpose(operand(weight), 0, 1), 0, epilogue);
    return outputs;
  };
  return autograd::keep_or_run("linear", run);
}

Tensor record_linear(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return record("linear", y, {x, weight, bias},
                [x = weight.requires_grad() ? SavedTensor(x) : SavedTensor(),
                 weight = x.requires_grad() ? SavedTensor(weight) : SavedTensor()](
                    const Tensor& dy, GradientSink& sink) -> Gradients {
                  Gradients gradients(3);
                  if (sink.wants(0)) {
                    gradients[0] = product(dy, weight.get());
                  }
                  sink.post(1, [x, dy](const GradientTarget& target) {
                    write_shared_factor_gradient(target, dy, x.get());
                  });
                  sink.post(2,
                            [dy](const GradientTarget& target) { sum_into(target, as_rows(dy)); });
                  return gradients;
                });
}

Activation activation_of(GeluForm form) {
  switch (form) {
    case GeluForm::Erf:
      return Activation::Gelu;
    case GeluForm::Tanh:
      return Activation::GeluTanh;
  }
  __builtin_unreachable();
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear(x, weight, bias);
  return record_linear(compute(x, weight, bias, Activation::None).front(), x, weight, bias);
}

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, GeluForm form) {
  check_linear(x, weight, bias);
  const std::vector<Tensor> outputs = compute(x, weight, bias, activation_of(form));
  return record_gelu(outputs[1], record_linear(outputs[0], x, weight, bias), form);
}

}  // namespace fsdptrain::ops
