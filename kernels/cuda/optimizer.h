#pragma once

#include "kernels/optimizer.h"

namespace fsdptrain::kernels::cuda {

// `scale`: one number of the device, or null for 1.
void adamw(void* stream, const View& parameters, const View& gradients, const View& exp_avg,
           const View& exp_avg_sq, const AdamwSegment* segments, std::int64_t num_segments,
           const AdamwConstants& constants, const double* scale);
// `momentum`: null for none.
void sgd(void* stream, const View& parameters, const View& gradients, const View* momentum,
         double momentum_factor, const SgdSegment* segments, std::int64_t num_segments,
         const double* scale);

void sqrt_of(void* stream, const View& out, const View& in);
void clip_factor(void* stream, const View& out, const View& norm, double max_norm);

}  // namespace fsdptrain::kernels::cuda
