#pragma once

#include "kernels/functors/math_core.h"
#include "kernels/functors/math_erf.h"
#include "kernels/functors/math_exp.h"

// Elementary functions as branch-free polynomials, so that loops over them vectorise and give
// the same bits in every lane, remainder and thread.
