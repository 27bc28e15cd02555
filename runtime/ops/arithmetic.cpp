#include "runtime/ops/arithmetic.h"

#include "kernels/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/reduction.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::record;
using autograd::SavedTensor;

template <class F>
Tensor apply(const char* op, F f, const Tensor& x) {
  if (F::kIntegers) {
    check_numeric(op, x);
  } else {
    check_floating(op, x);
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels::map(x.launch(), f, y.view(), x.view());
  return y;
}

template <class F>
Tensor apply(const char* op, F f, const Tensor& a, const Tensor& b) {
  check_same_dtype(op, a, b);
  check_same_device(op, a, b);
  if (F::kIntegers) {
    check_numeric(op, a);
  } else {
    check_floating(op, a);
  }
  const Shape shape = broadcast_shapes(op, a.shape(), b.shape());
  constexpr bool kIsComparison = std::is_base_of_v<kernels::ComparisonTag, F>;
  Tensor y = Tensor::empty(shape, kIsComparison ? DType::UInt8 : a.dtype(), a.device());
  kernels::map(a.launch(), f, y.view(), views::expand(a, shape).view(),
               views::expand(b, shape).view());
  return y;
}

Tensor select(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Shape shape =
      broadcast_shapes("where", broadcast_shapes("where", a.shape(), b.shape()), condition.shape());
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  kernels::map(a.launch(), kernels::Where{}, y.view(), views::expand(condition, shape).view(),
               views::expand(a, shape).view(), views::expand(b, shape).view());
  return y;
}

// The gradients of an op that passes dy on to `a` where `chosen` is 1, and to `b` elsewhere.
Gradients split_by(const Tensor& chosen, const Tensor& dy, const Shape& a, const Shape& b,
                   const GradientSink& sink) {
  const Tensor zero = Tensor::zeros({1}, dy.dtype(), dy.device());
  return {sink.wants(0) ? sum_to_shape(select(chosen, dy, zero), a) : Tensor(),
          sink.wants(1) ? sum_to_shape(select(chosen, zero, dy), b) : Tensor()};
}

template <class F, class Relation>
Tensor extremum(const char* op, F f, Relation a_is_chosen, const Tensor& a, const Tensor& b) {
  return record(op, apply(op, f, a, b), {a, b},
                [op, a_is_chosen, a = SavedTensor(a), b = SavedTensor(b)](
                    const Tensor& dy, GradientSink& sink) -> Gradients {
                  const Tensor chosen = apply(op, a_is_chosen, a.get(), b.get());
                  return split_by(chosen, dy, a.get().shape(), b.get().shape(), sink);
                });
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  return record("add", apply("add", kernels::Add{}, a, b), {a, b},
                [a = a.shape(), b = b.shape()](const Tensor& dy, GradientSink& sink) -> Gradients {
                  return {sink.wants(0) ? sum_to_shape(dy, a) : Tensor(),
                          sink.wants(1) ? sum_to_shape(dy, b) : Tensor()};
                });
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  return record("subtract", apply("subtract", kernels::Subtract{}, a, b), {a, b},
                [a = a.shape(), b = b.shape()](const Tensor& dy, GradientSink& sink) -> Gradients {
                  return {sink.wants(0) ? sum_to_shape(dy, a) : Tensor(),
                          sink.wants(1) ? sum_to_shape(negate(dy), b) : Tensor()};
                });
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  // Each factor is saved only if the other one wants a gradient.
  return record("multiply", apply("multiply", kernels::Multiply{}, a, b), {a, b},
                [a = b.requires_grad() ? SavedTensor(a) : SavedTensor(),
                 b = a.requires_grad() ? SavedTensor(b) : SavedTensor(), shape_a = a.shape(),
                 shape_b = b.shape()](const Tensor& dy, GradientSink& sink) -> Gradients {
                  return {sink.wants(0) ? sum_to_shape(multiply(dy, b.get()), shape_a) : Tensor(),
                          sink.wants(1) ? sum_to_shape(multiply(dy, a.get()), shape_b) : Tensor()};
                });
}

Tensor negate(const Tensor& x) {
  return record("negate", apply("negate", kernels::Negate{}, x), {x},
                [](const Tensor& dy, GradientSink&) -> Gradients { return {negate(dy)}; });
}

Tensor divide(const Tensor& a, const Tensor& b) {
  Tensor y = apply("divide", kernels::Divide{}, a, b);
  return record("divide", y, {a, b},
                [y = SavedTensor(y), b = SavedTensor(b), shape_a = a.shape()](
                    const Tensor& dy, GradientSink& sink) -> Gradients {
                  const Tensor da = divide(dy, b.get());
                  return {sink.wants(0) ? sum_to_shape(da, shape_a) : Tensor(),
                          sink.wants(1)
                              ? sum_to_shape(negate(multiply(da, y.get())), b.get().shape())
                              : Tensor()};
                });
}

Tensor maximum(const Tensor& a, const Tensor& b) {
  return extremum("maximum", kernels::Maximum{}, kernels::GreaterEqual{}, a, b);
}

Tensor minimum(const Tensor& a, const Tensor& b) {
  return extremum("minimum", kernels::Minimum{}, kernels::LessEqual{}, a, b);
}

Tensor affine(const Tensor& x, double factor, double term) {
  kernels::Affine f;
  f.factor = factor;
  f.term = term;
  return record(
      "affine", apply("affine", f, x), {x},
      [factor](const Tensor& dy, GradientSink&) -> Gradients { return {affine(dy, factor, 0)}; });
}

Tensor square(const Tensor& x) {
  return record("square", apply("square", kernels::Square{}, x), {x},
                [x = SavedTensor(x)](const Tensor& dy, GradientSink&) -> Gradients {
                  return {scale(multiply(dy, x.get()), 2)};
                });
}

Tensor sqrt(const Tensor& x) {
  Tensor y = apply("sqrt", kernels::Sqrt{}, x);
  return record("sqrt", y, {x}, [y = SavedTensor(y)](const Tensor& dy, GradientSink&) -> Gradients {
    return {apply("sqrt", kernels::SqrtBackward{}, dy, y.get())};
  });
}

Tensor rsqrt(const Tensor& x) {
  return record("rsqrt", apply("rsqrt", kernels::Rsqrt{}, x), {x},
                [x = SavedTensor(x)](const Tensor& dy, GradientSink&) -> Gradients {
                  return {apply("rsqrt", kernels::RsqrtBackward{}, dy, x.get())};
                });
}

Tensor equal(const Tensor& a, const Tensor& b) {
  return apply("equal", kernels::Equal{}, a, b);
}
Tensor not_equal(const Tensor& a, const Tensor& b) {
  return apply("not_equal", kernels::NotEqual{}, a, b);
}
Tensor less(const Tensor& a, const Tensor& b) {
  return apply("less", kernels::Less{}, a, b);
}
Tensor less_equal(const Tensor& a, const Tensor& b) {
  return apply("less_equal", kernels::LessEqual{}, a, b);
}
Tensor greater(const Tensor& a, const Tensor& b) {
  return apply("greater", kernels::Greater{}, a, b);
}
Tensor greater_equal(const Tensor& a, const Tensor& b) {
  return apply("greater_equal", kernels::GreaterEqual{}, a, b);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check<DTypeError>(condition.dtype() == DType::UInt8, "where: the condition must be uint8, got {}",
                    condition.dtype());
  check_same_dtype("where", a, b);
  check_same_device("where", a, b);
  check_same_device("where", a, condition);
  check_numeric("where", a);
  return record("where", select(condition, a, b), {a, b},
                [condition = SavedTensor(condition), shape_a = a.shape(), shape_b = b.shape()](
                    const Tensor& dy, GradientSink& sink) -> Gradients {
                  return split_by(condition.get(), dy, shape_a, shape_b, sink);
                });
}

}  // namespace fsdptrain::ops
