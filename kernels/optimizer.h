#pragma once

#include <cstdint>
#include <span>

#include "kernels/range.h"
#include "runtime/base/view.h"

// Flat optimizers: one kernel updates all segments of a chunk. All views are contiguous, of one
// length and one dtype, float32 or float64.
namespace fsdptrain::kernels {

// One segment's update, its constants worked out on the host in double.
struct AdamwSegment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double decay = 1;           // factor on the parameter: 1 - lr * weight_decay
  double step_size = 0;       // lr / (1 - beta1^t)
  double inv_correction = 1;  // 1 / sqrt(1 - beta2^t)
};

struct AdamwConstants {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
};

struct SgdSegment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double lr = 0;
  double weight_decay = 0;
};

// `gradient_scale`: one float64 on the device, or null for 1.
void adamw(const Launch& launch, const View& parameters, const View& gradients, const View& exp_avg,
           const View& exp_avg_sq, std::span<const AdamwSegment> segments,
           const AdamwConstants& constants, const View* gradient_scale);
// `momentum`: the buffer, or null for none.
void sgd(const Launch& launch, const View& parameters, const View& gradients, const View* momentum,
         double momentum_factor, std::span<const SgdSegment> segments, const View* gradient_scale);

// out[0] += the sum of squares over the ranges of x, in double: blocks of fixed size within each
// range, added in order. `out` is one float64.
void add_sum_of_squares(const Launch& launch, const View& out, const View& x,
                        std::span<const Range> ranges);

// out[0] = sqrt(in[0]), and out[0] = min(1, max_norm / (in[0] + 1e-6)), NaN for NaN: one float64
// each.
void sqrt_of(const Launch& launch, const View& out, const View& in);
void clip_factor(const Launch& launch, const View& out, const View& norm, double max_norm);

}  // namespace fsdptrain::kernels
