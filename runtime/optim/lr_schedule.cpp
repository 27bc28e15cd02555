#include "runtime/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdptrain::optim {
namespace {

// Steps in which the rate of a Wsd falls.
std::int64_t decay_steps(const LrSchedule& schedule) {
  const auto wanted = std::max<std::int64_t>(
      std::llround(schedule.decay_fraction * static_cast<double>(schedule.total_steps)),
      schedule.decay_fraction > 0 ? 1 : 0);
  return std::clamp<std::int64_t>(
      wanted, 0, std::max<std::int64_t>(schedule.total_steps - schedule.warmup_steps, 0));
}

// From 0, while the rate is the peak, to 1 at the last step; the first step of the decay is below
// the peak already.
double wsd_progress(const LrSchedule& schedule, std::int64_t step) {
  const std::int64_t steps = decay_steps(schedule);
  const std::int64_t done = step + 1 - (schedule.total_steps - steps);
  return steps == 0 ? 0
                    : std::clamp(static_cast<double>(done) / static_cast<double>(steps), 0.0, 1.0);
}

}  // namespace

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
    case Curve::Wsd:
      return peak * (1 - (1 - final_fraction) * wsd_progress(*this, step));
    case Curve::Cosine:
      return peak * (final_fraction +
                     (1 - final_fraction) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
  }
  return peak;
}

}  // namespace fsdptrain::optim
