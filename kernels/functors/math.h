#pragma once

#include "kernels/functors/variant.h"

// Elementary functions as branch-free polynomials, so that loops over them vectorise and give
// the same bits in every lane, remainder and thread.
namespace fsdptrain::kernels::inline FSDPTRAIN_VARIANT::math {

// One rounding where the hardware has it, else a product and a sum: libm's software fma costs
// more than a hundred times as much.
FSDPTRAIN_HOST_DEVICE float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__CUDACC__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

FSDPTRAIN_HOST_DEVICE double fma(double a, double b, double c) {
#if defined(__FMA__) || defined(__CUDACC__)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

FSDPTRAIN_HOST_DEVICE float sqrt(float x) {
  return __builtin_sqrtf(x);
}
FSDPTRAIN_HOST_DEVICE double sqrt(double x) {
  return __builtin_sqrt(x);
}
FSDPTRAIN_HOST_DEVICE float rsqrt(float x) {
  return 1.0f / sqrt(x);
}
FSDPTRAIN_HOST_DEVICE double rsqrt(double x) {
  return 1.0 / sqrt(x);
}

}  // namespace fsdptrain::kernels::inline FSDPTRAIN_VARIANT::math
