#include "runtime/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdptrain::optim {

double LrSchedule::at(std::int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  const double span =
      static_cast<double>(std::max<std::int64_t>(total_steps - 1 - warmup_steps, 1));
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / span);
  switch (curve) {
    case Curve::Constant:
      return peak;
    case Curve::Linear:
      return peak * (1 - (1 - final_fraction) * progress);
    case Curve::Cosine:
      return peak * (final_fraction +
                     (1 - final_fraction) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
  }
  return peak;
}

}  // namespace fsdptrain::optim
