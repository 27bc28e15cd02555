#pragma once

#include "kernels/functors/math_core.h"
#include "kernels/functors/math_erf.h"
#include "kernels/functors/math_exp.h"

// math::fma, sqrt, rsqrt, exp, log, tanh and erf for float and double: branch-free, so that loops
// over them vectorise and give the same bits in every lane, remainder and thread. No formula
// calls another mathematical function.
//
// Accuracy, for every input, in every variant: sqrt is correctly rounded, the others are within
// 2 ulp of the exact result. Subnormal inputs count like any others, and a subnormal result is
// within 2 of the least subnormal.
//
// NaN gives NaN, whatever its payload. exp and log overflow, underflow and end as in IEEE 754:
// exp(-inf) = 0, exp(inf) = inf, log(+-0) = -inf, log(inf) = inf, log(x < 0) = NaN. tanh and erf
// are odd, also in the sign of 0, never beyond 1, and 1 at inf.
