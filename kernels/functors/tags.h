#pragma once

#include <cstdint>

// The names of the elementwise formulas, empty or with the formula's constants. Ops name a
// formula by its tag; the formula itself, apply(tag, inputs...), is compiled only in the units
// under kernels/cpu and kernels/cuda (kernels/functors/*.h).
namespace fsdptrain::kernels {

// Same floating dtype in and out.
struct FloatingTag {
  template <class T>
  using Out = T;
  template <class T, int input>
  using In = T;
  static constexpr bool kIntegers = false;
};

// Same dtype in and out, integers too (modulo 2^n).
struct NumericTag : FloatingTag {
  static constexpr bool kIntegers = true;
};

// Inputs of one dtype, uint8 out: 1 where the relation holds.
struct ComparisonTag : NumericTag {
  template <class T>
  using Out = std::uint8_t;
};

// A uint8 condition, then inputs of the output's dtype.
struct SelectTag : NumericTag {
  template <class T, int input>
  struct InAt {
    using Type = T;
  };
  template <class T>
  struct InAt<T, 0> {
    using Type = std::uint8_t;
  };
  template <class T, int input>
  using In = typename InAt<T, input>::Type;
};

// Arithmetic.
struct Add : NumericTag {};
struct Subtract : NumericTag {};
struct Multiply : NumericTag {};
struct Divide : FloatingTag {};
struct Negate : NumericTag {};
struct Maximum : NumericTag {};
struct Minimum : NumericTag {};
// x * factor + term
struct Affine : FloatingTag {
  double factor = 1;
  double term = 0;
};
// a + factor * b
struct AddScaled : FloatingTag {
  double factor = 1;
};
// a + weight * (b - a)
struct Lerp : FloatingTag {
  double weight = 0;
};
struct Square : FloatingTag {};
struct Sqrt : FloatingTag {};
struct Rsqrt : FloatingTag {};

// Transcendental.
struct Exp : FloatingTag {};
struct Log : FloatingTag {};
struct Tanh : FloatingTag {};
struct Erf : FloatingTag {};

// Comparison and selection.
struct Equal : ComparisonTag {};
struct NotEqual : ComparisonTag {};
struct Less : ComparisonTag {};
struct LessEqual : ComparisonTag {};
struct Greater : ComparisonTag {};
struct GreaterEqual : ComparisonTag {};
struct Where : SelectTag {};

// Activations and their derivatives: (x), and (dy, x).
struct Gelu : FloatingTag {};
struct GeluBackward : FloatingTag {};
struct GeluTanh : FloatingTag {};
struct GeluTanhBackward : FloatingTag {};
struct Silu : FloatingTag {};
struct SiluBackward : FloatingTag {};
// silu(gate) * up: (gate, up); its derivative by the gate: (dy, gate, up). That by up is SiluMul of
// (gate, dy).
struct SiluMul : FloatingTag {};
struct SiluMulBackward : FloatingTag {};
// Derivatives of basic functions by their output: (dy, y).
struct TanhBackward : FloatingTag {};
struct SqrtBackward : FloatingTag {};
// (dy, x)
struct ErfBackward : FloatingTag {};
struct RsqrtBackward : FloatingTag {};

}  // namespace fsdptrain::kernels
