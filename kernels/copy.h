#pragma once

#include "runtime/base/view.h"

// Copies between views of one shape, strides free. Between floating dtypes and from integers the
// result is the nearest value, ties to even; from floating to integers it is rounded towards zero
// and clamped to the range, NaN becomes 0; between integers it wraps modulo 2^n.
namespace fsdptrain::kernels {

// out = in
void copy(const Launch& launch, const View& out, const View& in);

// out += in; floating dtypes, added in out's op-math type (double for float64, else float) and
// rounded to out's dtype.
void accumulate(const Launch& launch, const View& out, const View& in);

// out = value, in every element
void fill(const Launch& launch, const View& out, double value);

}  // namespace fsdptrain::kernels
