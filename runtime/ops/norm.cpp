#include "runtime/ops/norm.h"

#include "kernels/norm.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"
#include "runtime/ops/reduction.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::GradientTarget;
using autograd::record;
using autograd::SavedTensor;
using kernels::NormShape;

void check_factor(const char* op, const char* name, const Tensor& x, const Tensor& factor) {
  check_same_dtype(op, x, factor);
  check_same_device(op, x, factor);
  check<ShapeError>(factor.shape() == Shape{x.size(-1)}, "{}: {} of shape {} does not fit x of {}",
                    op, name, factor.shape(), x.shape());
}

// One value per row of x, in the type that its rows are summed in.
Tensor row_statistic(const Tensor& x, const NormShape& shape) {
  const DType dtype = x.dtype() == DType::Float64 ? DType::Float64 : DType::Float32;
  return Tensor::empty({shape.rows}, dtype, x.device());
}

struct Saved {
  SavedTensor x;
  SavedTensor mean;
  SavedTensor rstd;

  kernels::LayerNormSaved views() const {
    return {x.get().view(), mean.get().view(), rstd.get().view()};
  }
};

void check_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                double eps) {
  check_floating(op, x);
  check<ShapeError>(x.dims() > 0, "{}: needs at least one dimension, got shape {}", op, x.shape());
  check_factor(op, "weight", x, weight);
  if (bias.defined()) {
    check_factor(op, "bias", x, bias);
  }
  check<ConfigError>(eps > 0, "{}: eps must be positive, got {}", op, eps);
}

// The norm of x; with a residual, x is the place of the sum of `term` and it, to be filled here.
Tensor normalize(const char* op, const Tensor& x, const Tensor& term, const Tensor& residual,
                 const Tensor& weight, const Tensor& bias, double eps) {
  const std::int64_t width = x.size(-1);
  const NormShape shape{width == 0 ? 0 : x.numel() / width, width};
  const bool has_residual = residual.defined();
  const Tensor x_dense = dense(x);
  const Tensor term_dense = has_residual ? dense(term) : x_dense;
  const Tensor residual_dense = has_residual ? dense(residual) : Tensor();
  const Tensor weight_dense = dense(weight);
  const Tensor bias_dense = bias.defined() ? dense(bias) : Tensor();
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor mean = row_statistic(x, shape);
  const Tensor rstd = row_statistic(x, shape);
  kernels::layer_norm(
      x.launch(), {y.view(), mean.view(), rstd.view(), has_residual ? x.view() : View()},
      {term_dense.view(), weight_dense.view(), bias.defined() ? bias_dense.view() : View(),
       bias.defined(), has_residual ? residual_dense.view() : View(), has_residual},
      shape, eps);

  return record(
      op, y, {x, weight, bias},
      [saved = Saved{x.is_contiguous() ? x : x_dense, mean, rstd}, weight = SavedTensor(weight),
       shape](const Tensor& dy, GradientSink& sink) -> Gradients {
        const Tensor from = dense(dy);
        sink.post(1, [=](const GradientTarget& target) {
          write_dense(target, [&](const Tensor& out, bool accumulate) {
            kernels::layer_norm_backward_weight(out.launch(), out.view(), from.view(),
                                                saved.views(), shape, accumulate);
          });
        });
        sink.post(2, [=](const GradientTarget& target) { sum_into(target, from); });
        if (!sink.wants(0)) {
          return {Tensor(), Tensor(), Tensor()};
        }
        const Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
        kernels::layer_norm_backward(dx.launch(), dx.view(), from.view(),
                                     dense(weight.get()).view(), saved.views(), shape);
        return {dx, Tensor(), Tensor()};
      });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_norm("layer_norm", x, weight, bias, eps);
  return normalize("layer_norm", x, Tensor(), Tensor(), weight, bias, eps);
}

AddLayerNormOutput add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                  const Tensor& bias, double eps) {
  constexpr const char* kOp = "add_layer_norm";
  check_norm(kOp, x, weight, bias, eps);
  check_same_dtype(kOp, x, residual);
  check_same_device(kOp, x, residual);
  check<ShapeError>(x.shape() == residual.shape(), "{}: x of shape {} and residual of shape {}",
                    kOp, x.shape(), residual.shape());
  // The kernel fills the sum with the norm; the graph has a node for each.
  const Tensor sum = record(kOp, Tensor::empty(x.shape(), x.dtype(), x.device()), {x, residual},
                            [](const Tensor& dy, GradientSink&) -> Gradients {
                              return {dy, dy};
                            });
  return {sum, normalize(kOp, sum, x, residual, weight, bias, eps)};
}

}  // namespace fsdptrain::ops
