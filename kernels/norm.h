#pragma once

#include "runtime/base/view.h"

// Normalisation of every row of a dense [rows, width]. Tensors are floating and of one dtype, but
// for the statistics, one per row in its op-math type (float64 for float64, else float32).
namespace fsdptrain::kernels {

struct NormShape {
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

struct LayerNormOut {
  View y;
  View mean;
  View rstd;
  // x + residual, where there is a residual.
  View sum = {};
};

struct LayerNormIn {
  View x;
  View weight;
  View bias;
  bool has_bias = false;
  // Added to x beforehand: the sum is what is normalised.
  View residual = {};
  bool has_residual = false;
};

// What the gradients are made of.
struct LayerNormSaved {
  View x;
  View mean;
  View rstd;
};

// y = (x - mean) * rstd * weight + bias with rstd = 1 / sqrt(variance + eps), the variance being
// the mean of the squared deviations.
void layer_norm(const Launch& launch, const LayerNormOut& out, const LayerNormIn& in,
                const NormShape& shape, double eps);

// dx = rstd * (g - mean(g) - n * mean(g * n)) with g = dy * weight and n = (x - mean) * rstd.
void layer_norm_backward(const Launch& launch, const View& dx, const View& dy, const View& weight,
                         const LayerNormSaved& saved, const NormShape& shape);

// dweight = sum over rows of dy * n, added to what is there if `accumulate`; dweight may have
// another floating dtype. (The gradient of the bias is kernels::sum of dy.)
void layer_norm_backward_weight(const Launch& launch, const View& dweight, const View& dy,
                                const LayerNormSaved& saved, const NormShape& shape,
                                bool accumulate);

struct RmsNormOut {
  View y;
  View rstd;
  // x + residual, where there is a residual.
  View sum = {};
};

struct RmsNormIn {
  View x;
  View weight;
  View residual = {};
  bool has_residual = false;
};

struct RmsNormSaved {
  View x;
  View rstd;
};

// y = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps).
void rms_norm(const Launch& launch, const RmsNormOut& out, const RmsNormIn& in,
              const NormShape& shape, double eps);

// dx = rstd * (g - n * mean(g * n)) with g = dy * weight and n = x * rstd.
void rms_norm_backward(const Launch& launch, const View& dx, const View& dy, const View& weight,
                       const RmsNormSaved& saved, const NormShape& shape);

// As layer_norm_backward_weight, with n = x * rstd.
void rms_norm_backward_weight(const Launch& launch, const View& dweight, const View& dy,
                              const RmsNormSaved& saved, const NormShape& shape, bool accumulate);

}  // namespace fsdptrain::kernels
