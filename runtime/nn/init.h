#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/nn/parameter.h"

namespace fsdptrain::nn {

// Writes elements [first_element, first_element + values.numel()) of the parameter `name` into
// `values`, a contiguous float32, float64 or bfloat16 tensor; bfloat16 is rounded from float32.
// Nothing on meta.
void initialize(const Tensor& values, std::string_view name, const Init& init, std::uint64_t seed,
                std::int64_t first_element = 0);

// The number x with P(X < x) = p for a standard normal X and 0 < p < 1: algorithm AS 241 of
// M. J. Wichura, "The percentage points of the normal distribution", Applied Statistics 37
// (1988); relative accuracy about 1e-15 for p in [2^-33, 1 - 2^-33].
double inverse_normal(double p);

}  // namespace fsdptrain::nn
