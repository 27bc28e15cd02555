#pragma once

#include "runtime/base/view.h"

// Rotary position embedding (Su et al., arXiv 2104.09864).
namespace fsdptrain::kernels {

// Shape suffixes: B batch, T tokens, H heads, D head size. Strides are free; heads are float32,
// float64 or bfloat16, positions int64.
struct Rotary {
  View out_BTHD;
  View in_BTHD;
  View positions_BT;
  // D / 2 angles for each step of the position, on the host.
  const double* frequencies = nullptr;
  // By the negative angle: the gradient.
  bool inverse = false;
};

// Turns every pair (x[i], x[i + D / 2]) by the angle position * frequencies[i], which is computed
// in double; its sine and cosine are rounded to the op-math type. Positions times frequencies are
// in [0, 2^26]. Bits depend neither on threads nor on the ISA variant.
void rotary(const Launch& launch, const Rotary& args);

}  // namespace fsdptrain::kernels
