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

struct NormInputs {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& bias;  // undefined for none
  // Where defined, what is normalised is x + residual, and `sum`, dense, takes it.
  const Tensor& residual;
  const Tensor& sum;
};

struct Normalized {
  Tensor y;
  Tensor mean;
  Tensor rstd;
  // What was normalised, dense; the caller's tensor where that is.
  Tensor x;
  NormShape shape;
};

Normalized normalize(const NormInputs& in, double eps) {
  const auto dense_of = [](const Tensor& tensor) {
    return tensor.defined() ? dense(tensor) : Tensor();
  };
  const auto view_of = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.view() : View();
  };
  const Tensor& x = in.x;
  const std::int64_t width = x.size(-1);
  const NormShape shape{width == 0 ? 0 : x.numel() / width, width};
  const Tensor x_dense = dense(x);
  const Tensor residual_dense = dense_of(in.residual);
  const Tensor weight_dense = dense(in.weight);
  const Tensor bias_dense = dense_of(in.bias);
  Normalized out;
  out.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  out.mean = row_statistic(x, shape);
  out.rstd = row_statistic(x, shape);
  out.x = x.is_contiguous() ? x : x_dense;
  if (in.sum.defined()) {
    out.x = in.sum;
  }
  out.shape = shape;
  kernels::layer_norm(x.launch(), {out.y.view(), out.mean.view(), out.rstd.view(), view_of(in.sum)},
                      {x_dense.view(), weight_dense.view(), view_of(bias_dense),
                       bias_dense.defined(), view_of(residual_dense), residual_dense.defined()},
                      shape, eps);
  return out;
}

// The norm, linked to the tensor `x` that it is of.
Tensor record_norm(const char* op, const Normalized& made, const Tensor& x, const Tensor& weight,
                   const Tensor& bias) {
  return record(op, made.y, {x, weight, bias},
                [saved = Saved{made.x, made.mean, made.rstd}, weight = SavedTensor(weight),
                 shape = made.shape](const Tensor& dy, GradientSink& sink) -> Gradients {
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
  const Normalized made =
      normalize({.x = x, .weight = weight, .bias = bias, .residual = {}, .sum = {}}, eps);
  return record_norm("layer_norm", made, x, weight, bias);
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
  const Tensor filled = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Normalized made =
      normalize({.x = x, .weight = weight, .bias = bias, .residual = residual, .sum = filled}, eps);
  const Tensor sum =
      record(kOp, filled, {x, residual}, [](const Tensor& dy, GradientSink&) -> Gradients {
        return {dy, dy};
      });
  return {sum, record_norm(kOp, made, sum, weight, bias)};
}

}  // namespace fsdptrain::ops
