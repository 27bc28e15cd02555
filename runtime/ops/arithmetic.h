#pragma once

#include "runtime/tensor/tensor.h"

// Elementwise arithmetic, comparison and selection. Operands broadcast by NumPy's rule and have
// one dtype and device; gradients are summed back to each operand's shape.
namespace fsdptrain::ops {

// Integers wrap modulo 2^n.
Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor negate(const Tensor& x);
// Floating dtypes only.
Tensor divide(const Tensor& a, const Tensor& b);
// NaN propagates; -0 < +0; a tie gives its gradient to `a`.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

// x * factor + term
Tensor affine(const Tensor& x, double factor, double term);
inline Tensor scale(const Tensor& x, double factor) {
  return affine(x, factor, 0);
}

Tensor square(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);

// uint8, 1 where the relation holds; no gradient. Any comparison with NaN but != is false.
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);

// a where `condition` (uint8) is not 0, else b.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

}  // namespace fsdptrain::ops
