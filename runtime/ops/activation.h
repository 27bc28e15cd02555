#pragma once

#include "runtime/tensor/tensor.h"

// Elementwise functions of floating tensors.
namespace fsdptrain::ops {

Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor erf(const Tensor& x);

enum class GeluForm { Erf, Tanh };
// Gaussian error linear unit; GPT-2 uses the tanh form.
Tensor gelu(const Tensor& x, GeluForm form = GeluForm::Erf);
// y, linked to x, for a caller that has computed y = gelu(x, form) by itself.
Tensor record_gelu(const Tensor& y, const Tensor& x, GeluForm form);

// x / (1 + exp(-x)): 0 at -infinity.
Tensor silu(const Tensor& x);
// silu(gate) * up, SwiGLU's product, in one pass; one shape and dtype, any strides.
Tensor silu_mul(const Tensor& gate, const Tensor& up);
// The same for the output of one projection, [..., 2 F]: all gates, then all ups. Its gradient is
// one tensor, written in place.
Tensor packed_silu_mul(const Tensor& gate_up);

}  // namespace fsdptrain::ops
