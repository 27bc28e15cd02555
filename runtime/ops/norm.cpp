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

enum class Form { Layer, Rms };

struct Saved {
  Form form;
  NormShape shape;
  SavedTensor x;
  SavedTensor mean;  // Layer only
  SavedTensor rstd;

  kernels::LayerNormSaved layer() const {
    return {x.get().view(), mean.get().view(), rstd.get().view()};
  }
  kernels::RmsNormSaved rms() const { return {x.get().view(), rstd.get().view()}; }
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
  Form form;
  const Tensor& x;
  const Tensor& weight;
  const Tensor& bias;  // undefined for none; Layer only
  // Where defined, what is normalised is x + residual, and `sum`, dense, takes it.
  const Tensor& residual;
  const Tensor& sum;
};

struct Normalized {
  Tensor y;
  Tensor mean;  // Layer only
  Tensor rstd;
  // What was normalised, dense; the caller's tensor where that is.
  Tensor x;
  NormShape shape;
};

Tensor dense_of(const Tensor& tensor) {
  return tensor.defined() ? dense(tensor) : Tensor();
}
View view_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.view() : View();
}

Normalized normalize(const NormInputs& in, double eps) {
  const Tensor& x = in.x;
  const std::int64_t width = x.size(-1);
  const NormShape shape{width == 0 ? 0 : x.numel() / width, width};
  const Tensor x_dense = dense(x);
  const Tensor residual_dense = dense_of(in.residual);
  const Tensor weight_dense = dense(in.weight);
  const Tensor bias_dense = dense_of(in.bias);
  Normalized out;
  out.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  out.rstd = row_statistic(x, shape);
  out.x = x.is_contiguous() ? x : x_dense;
  if (in.sum.defined()) {
    out.x = in.sum;
  }
  out.shape = shape;
  switch (in.form) {
    case Form::Layer:
      out.mean = row_statistic(x, shape);
      kernels::layer_norm(x.launch(),
                          {out.y.view(), out.mean.view(), out.rstd.view(), view_of(in.sum)},
                          {x_dense.view(), weight_dense.view(), view_of(bias_dense),
                           bias_dense.defined(), view_of(residual_dense), residual_dense.defined()},
                          shape, eps);
      return out;
    case Form::Rms:
      kernels::rms_norm(
          x.launch(), {out.y.view(), out.rstd.view(), view_of(in.sum)},
          {x_dense.view(), weight_dense.view(), view_of(residual_dense), residual_dense.defined()},
          shape, eps);
      return out;
  }
  __builtin_unreachable();
}

void write_weight_gradient(const Tensor& out, const Tensor& dy, const Saved& saved,
                           bool accumulate) {
  switch (saved.form) {
    case Form::Layer:
      return kernels::layer_norm_backward_weight(out.launch(), out.view(), dy.view(), saved.layer(),
                                                 saved.shape, accumulate);
    case Form::Rms:
      return kernels::rms_norm_backward_weight(out.launch(), out.view(), dy.view(), saved.rms(),
                                               saved.shape, accumulate);
  }
}

Tensor input_gradient(const Tensor& dy, const Tensor& weight, const Saved& saved) {
  Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  const Tensor factor = dense(weight);
  switch (saved.form) {
    case Form::Layer:
      kernels::layer_norm_backward(dx.launch(), dx.view(), dy.view(), factor.view(), saved.layer(),
                                   saved.shape);
      return dx;
    case Form::Rms:
      kernels::rms_norm_backward(dx.launch(), dx.view(), dy.view(), factor.view(), saved.rms(),
                                 saved.shape);
      return dx;
  }
  __builtin_unreachable();
}

// The norm, linked to the tensor `x` that it is of.
Tensor record_norm(const char* op, Form form, const Normalized& made, const Tensor& x,
                   const Tensor& weight, const Tensor& bias) {
  return record(op, made.y, {x, weight, bias},
                [saved = Saved{form, made.shape, made.x, made.mean, made.rstd},
                 weight = SavedTensor(weight)](const Tensor& dy, GradientSink& sink) -> Gradients {
                  const Tensor from = dense(dy);
                  sink.post(1, [=](const GradientTarget& target) {
                    write_dense(target, [&](const Tensor& out, bool accumulate) {
                      write_weight_gradient(out, from, saved, accumulate);
                    });
                  });
                  sink.post(2, [=](const GradientTarget& target) { sum_into(target, from); });
                  return {sink.wants(0) ? input_gradient(from, weight.get(), saved) : Tensor(),
                          Tensor(), Tensor()};
                });
}

AddNormOutput add_norm(const char* op, Form form, const Tensor& x, const Tensor& residual,
                       const Tensor& weight, const Tensor& bias, double eps) {
  check_norm(op, x, weight, bias, eps);
  check_same_dtype(op, x, residual);
  check_same_device(op, x, residual);
  check<ShapeError>(x.shape() == residual.shape(), "{}: x of shape {} and residual of shape {}", op,
                    x.shape(), residual.shape());
  // The kernel fills the sum with the norm; the graph has a node for each.
  const Tensor sum = record(op, Tensor::empty(x.shape(), x.dtype(), x.device()), {x, residual},
                            [](const Tensor& dy, GradientSink&) -> Gradients {
                              return {dy, dy};
                            });
  const Normalized made = normalize(
      {.form = form, .x = x, .weight = weight, .bias = bias, .residual = residual, .sum = sum},
      eps);
  return {sum, record_norm(op, form, made, sum, weight, bias)};
}

Tensor norm(const char* op, Form form, const Tensor& x, const Tensor& weight, const Tensor& bias,
            double eps) {
  check_norm(op, x, weight, bias, eps);
  const Normalized made = normalize(
      {.form = form, .x = x, .weight = weight, .bias = bias, .residual = {}, .sum = {}}, eps);
  return record_norm(op, form, made, x, weight, bias);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return norm("layer_norm", Form::Layer, x, weight, bias, eps);
}

AddNormOutput add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                             const Tensor& bias, double eps) {
  return add_norm("add_layer_norm", Form::Layer, x, residual, weight, bias, eps);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return norm("rms_norm", Form::Rms, x, weight, {}, eps);
}

AddNormOutput add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                           double eps) {
  return add_norm("add_rms_norm", Form::Rms, x, residual, weight, {}, eps);
}

}  // namespace fsdptrain::ops
