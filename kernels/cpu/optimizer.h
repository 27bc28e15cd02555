#pragma once

#include "kernels/optimizer.h"

namespace fsdptrain::kernels::cpu {

// Elements per task of the flat kernels, and the unit of their sums.
inline constexpr std::int64_t kOptimizerBlock = 32768;

[[gnu::always_inline]] inline std::int64_t optimizer_blocks(std::int64_t count) {
  return (count + kOptimizerBlock - 1) / kOptimizerBlock;
}

template <Isa isa>
void adamw(const Launch& launch, const View& parameters, const View& gradients, const View& exp_avg,
           const View& exp_avg_sq, const AdamwSegment* segments, std::int64_t num_segments,
           const AdamwConstants& constants, const double* scale);
template <Isa isa>
void sgd(const Launch& launch, const View& parameters, const View& gradients, const View* momentum,
         double momentum_factor, const SgdSegment* segments, std::int64_t num_segments,
         const double* scale);
template <Isa isa>
void sum_of_squares(const Launch& launch, double* partials, const View& x, const Range& range);

}  // namespace fsdptrain::kernels::cpu
