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

}  // namespace fsdptrain::ops
