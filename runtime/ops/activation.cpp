#include "runtime/ops/activation.h"

#include "kernels/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/checks.h"
#include "runtime/tensor/views.h"

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

// The halves of [..., 2 F]: gates, then ups.
struct GateUp {
  Tensor gate;
  Tensor up;
};

GateUp unpacked(const Tensor& gate_up) {
  const std::int64_t features = gate_up.size(-1) / 2;
  const int last = gate_up.dims() - 1;
  return {views::narrow(gate_up.detach(), last, 0, features),
          views::narrow(gate_up.detach(), last, features, features)};
}

// Fills the gradients that are defined.
void silu_mul_backward(const GateUp& gradients, const Tensor& dy, const GateUp& in) {
  if (gradients.gate.defined()) {
    kernels::map(dy.launch(), kernels::SiluMulBackward{}, gradients.gate.view(), dy.view(),
                 in.gate.view(), in.up.view());
  }
  if (gradients.up.defined()) {
    kernels::map(dy.launch(), kernels::SiluMul{}, gradients.up.view(), in.gate.view(), dy.view());
  }
}

Tensor like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype(), x.device());
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

Tensor silu(const Tensor& x) {
  return by_input("silu", kernels::Silu{}, kernels::SiluBackward{}, x);
}

Tensor silu_mul(const Tensor& gate, const Tensor& up) {
  check_floating("silu_mul", gate);
  check_same_dtype("silu_mul", gate, up);
  check_same_device("silu_mul", gate, up);
  check<ShapeError>(gate.shape() == up.shape(), "silu_mul: gate of shape {} and up of shape {}",
                    gate.shape(), up.shape());
  return record("silu_mul", apply(kernels::SiluMul{}, gate, up), {gate, up},
                [gate = SavedTensor(gate), up = SavedTensor(up)](const Tensor& dy,
                                                                 GradientSink& sink) -> Gradients {
                  const GateUp gradients{sink.wants(0) ? like(dy) : Tensor(),
                                         sink.wants(1) ? like(dy) : Tensor()};
                  silu_mul_backward(gradients, dy, {gate.get(), up.get()});
                  return {gradients.gate, gradients.up};
                });
}

Tensor packed_silu_mul(const Tensor& gate_up) {
  check_floating("silu_mul", gate_up);
  check<ShapeError>(gate_up.dims() >= 1 && gate_up.size(-1) % 2 == 0,
                    "silu_mul: packed gates and ups must be [..., 2 * features], got {}",
                    gate_up.shape());
  const auto [gate, up] = unpacked(gate_up);
  return record("silu_mul", apply(kernels::SiluMul{}, gate, up), {gate_up},
                [gate_up = SavedTensor(gate_up)](const Tensor& dy, GradientSink&) -> Gradients {
                  const Tensor dgate_up = like(gate_up.get());
                  silu_mul_backward(unpacked(dgate_up), dy, unpacked(gate_up.get()));
                  return {dgate_up};
                });
}

}  // namespace fsdptrain::ops
