#include "runtime/ops/matrix.h"

#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

// Leading dimensions folded into one batch dimension: [..., M, K] becomes [batch, M, K].
Shape batch_shape(const Tensor& x) {
  std::int64_t batches = 1;
  for (int dim = 0; dim + 2 < x.dims(); ++dim) {
    batches *= x.shape()[dim];
  }
  return {batches, x.size(-2), x.size(-1)};
}

// Another shape of x as an operand: a copy where no view does it.
Tensor operand_as(const Tensor& x, const Shape& shape) {
  return operand(views::reshape(views::can_reshape(x, shape) ? x.detach() : dense(x), shape));
}

Tensor as_batch(const Tensor& x) {
  return x.dims() <= 3 ? operand(x) : operand_as(x, batch_shape(x));
}

}  // namespace

void check_factors(const char* op, const Tensor& a, const Tensor& b) {
  check_same_dtype(op, a, b);
  check_same_device(op, a, b);
  check_floating(op, a);
}

Tensor operand(const Tensor& x) {
  return kernels::is_matrix(x.view()) ? x.detach() : dense(x);
}

Shape rows_shape(const Tensor& x) {
  std::int64_t rows = 1;
  for (int dim = 0; dim + 1 < x.dims(); ++dim) {
    rows *= x.shape()[dim];
  }
  return {rows, x.size(-1)};
}

Tensor as_rows(const Tensor& x) {
  return operand_as(x, rows_shape(x));
}

void multiply_into(const Tensor& out, const Tensor& a, const Tensor& b, double beta,
                   const kernels::MatmulEpilogue& epilogue) {
  kernels::matmul(out.launch(), out.view(), a.view(), b.view(), beta, epilogue);
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

void write_shared_factor_gradient(const autograd::GradientTarget& target, const Tensor& a,
                                  const Tensor& dy) {
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
  autograd::write_gradient(target, product);
}

}  // namespace fsdptrain::ops
