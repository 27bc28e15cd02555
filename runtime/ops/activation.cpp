#include "runtime/ops/activation.h"

#include "kernels/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/checks.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::record;
using autograd::SavedTensor;

// y = f(inputs...) over inputs of one shape.
template <class F, class... In>
Tensor apply(F f, const Tensor& x, const In&... more) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels::map(x.launch(), f, y.view(), x.view(), more.view()...);
  return y;
}

template <class Backward>
Tensor record_by_input(const char* op, const Tensor& y, Backward df, const Tensor& x) {
  return record(op, y, {x}, [df, x = SavedTensor(x)](const Tensor& dy, GradientSink&) -> Gradients {
    return {apply(df, dy, x.get())};
  });
}

// A function whose derivative is written by its input.
template <class F, class Backward>
Tensor by_input(const char* op, F f, Backward df, const Tensor& x) {
  check_floating(op, x);
  return record_by_input(op, apply(f, x), df, x);
}

// A function whose derivative is written by its output.
template <class F, class Backward>
Tensor by_output(const char* op, F f, Backward df, const Tensor& x) {
  check_floating(op, x);
  Tensor y = apply(f, x);
  return record(op, y, {x}, [df, y = SavedTensor(y)](const Tensor& dy, GradientSink&) -> Gradients {
    return {apply(df, dy, y.get())};
  });
}

}  // namespace

Tensor exp(const Tensor& x) {
  return by_output("exp", kernels::Exp{}, kernels::Multiply{}, x);
}

Tensor log(const Tensor& x) {
  return by_input("log", kernels::Log{}, kernels::Divide{}, x);
}

Tensor tanh(const Tensor& x) {
  return by_output("tanh", kernels::Tanh{}, kernels::TanhBackward{}, x);
}

Tensor erf(const Tensor& x) {
  return by_input("erf", kernels::Erf{}, kernels::ErfBackward{}, x);
}

Tensor gelu(const Tensor& x, GeluForm form) {
  check_floating("gelu", x);
  switch (form) {
    case GeluForm::Erf:
      return record_gelu(apply(kernels::Gelu{}, x), x, form);
    case GeluForm::Tanh:
      return record_gelu(apply(kernels::GeluTanh{}, x), x, form);
  }
  __builtin_unreachable();
}

Tensor record_gelu(const Tensor& y, const Tensor& x, GeluForm form) {
  switch (form) {
    case GeluForm::Erf:
      return record_by_input("gelu", y, kernels::GeluBackward{}, x);
    case GeluForm::Tanh:
      return record_by_input("gelu", y, kernels::GeluTanhBackward{}, x);
  }
  __builtin_unreachable();
}

}  // namespace fsdptrain::ops
