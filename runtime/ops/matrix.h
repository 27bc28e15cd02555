#pragma once

#include "kernels/matmul.h"
#include "runtime/autograd/gradient_slot.h"
#include "runtime/tensor/tensor.h"

// Tensors as matrices for kernels::matmul: for the ops of this folder that multiply.
namespace fsdptrain::ops {

// One floating dtype, one device.
void check_factors(const char* op, const Tensor& a, const Tensor& b);

// x without history, or a dense copy where the kernel cannot read it in place.
Tensor operand(const Tensor& x);

// [..., K] as a matrix of K columns.
Shape rows_shape(const Tensor& x);
Tensor as_rows(const Tensor& x);

// out = a @ b + beta * out
void multiply_into(const Tensor& out, const Tensor& a, const Tensor& b, double beta,
                   const kernels::MatmulEpilogue& epilogue = {});

// a[..., M, K] @ b[..., K, N], or b[K, N] for all of a.
Tensor product(const Tensor& a, const Tensor& b);

// Writes the gradient of a factor [K, N] that all rows of a[..., K] were multiplied by, with
// dy[..., N]: the sum over all rows.
void write_shared_factor_gradient(const autograd::GradientTarget& target, const Tensor& a,
                                  const Tensor& dy);

}  // namespace fsdptrain::ops
