#include "runtime/ops/matmul.h"

#include "kernels/copy.h"
#include "kernels/matmul.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::GradientTarget;
using autograd::record;
using autograd::SavedTensor;

// x, or a dense copy where the kernel cannot read it in place.
Tensor operand(const Tensor& x) {
  return kernels::is_matrix(x.view()) ? x.detach() : contiguous(x.detach());
}

// Leading dimensions folded into one batch dimension: [..., M, K] becomes [batch, M, K].
Shape batch_shape(const Tensor& x) {
  std::int64_t batches = 1;
  for (int dim = 0; dim + 2 < x.dims(); ++dim) {
    batches *= x.shape()[dim];
  }
  return {batches, x.size(-2), x.size(-1)};
}

// [..., K] as a matrix of K columns.
Shape rows_shape(const Tensor& x) {
  std::int64_t rows = 1;
  for (int dim = 0; dim + 1 < x.dims(); ++dim) {
    rows *= x.shape()[dim];
  }
  return {rows, x.size(-1)};
}

// Another shape of x as an operand: a copy where no view does it.
Tensor operand_as(const Tensor& x, const Shape& shape) {
  return operand(
      views::reshape(views::can_reshape(x, shape) ? x.detach() : contiguous(x.detach()), shape));
}

Tensor as_batch(const Tensor& x) {
  return x.dims() <= 3 ? operand(x) : operand_as(x, batch_shape(x));
}

Tensor as_rows(const Tensor& x) {
  return operand_as(x, rows_shape(x));
}

void multiply_into(const Tensor& out, const Tensor& a, const Tensor& b, double beta) {
  kernels::matmul(out.launch(), out.view(), a.view(), b.view(), beta);
}

Tensor product(const Tensor& a, const Tensor& b) {
  Shape shape = a.shape();
  shape[a.dims() - 1] = b.size(-1);
  const Tensor out = Tensor::empty(shape, a.dtype(), a.device());
  if (b.dims() == 2) {
    multiply_into(views::reshape(out, rows_shape(out)), as_rows(a), operand(b), 0);
  } else {
    multiply_into(out.dims() <= 3 ? out : views::reshape(out, batch_shape(out)), as_batch(a),
                  as_batch(b), 0);
  }
  return out;
}

void check_operands(const char* op, const Tensor& a, const Tensor& b) {
  check_same_dtype(op, a, b);
  check_same_device(op, a, b);
  check_floating(op, a);
}

// grad_b[K, N] for a shared b: the sum over all rows of a.
void shared_factor_gradient(const GradientTarget& target, const Tensor& a, const Tensor& dy) {
  const Tensor& out = target.destination;
  const Tensor left = views::transpose(as_rows(a), 0, 1);
  const Tensor right = as_rows(dy);
  const bool is_written_by_gemm =
      out.dtype() == dy.dtype() || (out.dtype() == DType::Float32 && dy.dtype() == DType::BFloat16);
  if (is_written_by_gemm && kernels::is_matrix(out.view())) {
    multiply_into(out, left, right, target.accumulate ? 1 : 0);
    return;
  }
  const Tensor product = Tensor::empty(out.shape(), dy.dtype(), dy.device());
  multiply_into(product, left, right, 0);
  write_gradient(target, product);
}

void bias_gradient(const GradientTarget& target, const Tensor& dy) {
  sum_into(target, as_rows(dy));
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_operands("matmul", a, b);
  check<ShapeError>(a.dims() >= 2 && b.dims() >= 2 && a.size(-1) == b.size(-2),
                    "matmul: shapes {} and {} do not multiply", a.shape(), b.shape());
  bool same_batch = a.dims() == b.dims();
  for (int dim = 0; same_batch && dim + 2 < a.dims(); ++dim) {
    same_batch = a.shape()[dim] == b.shape()[dim];
  }
  check<ShapeError>(same_batch || b.dims() == 2,
                    "matmul: the leading dimensions of {} and {} differ", a.shape(), b.shape());
  const Tensor y =
      autograd::keep_or_run("matmul", [&] { return std::vector{product(a, b)}; }).front();
  return record("matmul", y, {a, b},
                [a = b.requires_grad() ? SavedTensor(a) : SavedTensor(),
                 b = a.requires_grad() ? SavedTensor(b) : SavedTensor(),
                 shared = b.dims() == 2](const Tensor& dy, GradientSink& sink) -> Gradients {
                  Gradients gradients(2);
                  if (sink.wants(0)) {
                    gradients[0] = product(dy, views::transpose(b.get(), -1, -2));
                  }
                  if (shared) {
                    sink.post(1, [a, dy](const GradientTarget& target) {
                      shared_factor_gradient(target, a.get(), dy);
                    });
                  } else if (sink.wants(1)) {
                    gradients[1] = product(views::transpose(a.get(), -1, -2), dy);
                  }
                  return gradients;
                });
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_operands("linear", x, weight);
  check<ShapeError>(x.dims() >= 1 && weight.dims() == 2 && x.size(-1) == weight.size(1),
                    "linear: x of shape {} does not fit weight [out, in] of shape {}", x.shape(),
                    weight.shape());
  Shape shape = x.shape();
  shape[x.dims() - 1] = weight.size(0);
  if (bias.defined()) {
    check_operands("linear", x, bias);
    check<ShapeError>(bias.shape() == Shape{weight.size(0)},
                      "linear: bias of shape {} does not fit weight [out, in] of shape {}",
                      bias.shape(), weight.shape());
  }
  const auto compute = [&] {
    const Tensor out = Tensor::empty(shape, x.dtype(), x.device());
    if (bias.defined()) {
      kernels::copy(out.launch(), out.view(), views::expand(bias, shape).view());
    }
    multiply_into(views::reshape(out, rows_shape(out)), as_rows(x),
                  views::transpose(operand(weight), 0, 1), bias.defined() ? 1 : 0);
    return std::vector{out};
  };
  const Tensor y = autograd::keep_or_run("linear", compute).front();

  return record("linear", y, {x, weight, bias},
                [x = weight.requires_grad() ? SavedTensor(x) : SavedTensor(),
                 weight = x.requires_grad() ? SavedTensor(weight) : SavedTensor()](
                    const Tensor& dy, GradientSink& sink) -> Gradients {
                  Gradients gradients(3);
                  if (sink.wants(0)) {
                    gradients[0] = product(dy, weight.get());
                  }
                  sink.post(1, [x, dy](const GradientTarget& target) {
                    shared_factor_gradient(target, dy, x.get());
                  });
                  sink.post(2, [dy](const GradientTarget& target) { bias_gradient(target, dy); });
                  return gradients;
                });
}

}  // namespace fsdptrain::ops
