#pragma once

#include <cstdint>

namespace fsdptrain::optim {

// The learning rate as a function of the step, so that a resumed run continues it.
struct LrSchedule {
  enum class Curve { Constant, Linear, Cosine };

  Curve curve = Curve::Cosine;
  double peak = 0;
  // Linear from 0, exclusive, to the peak.
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;
  // Of the peak, reached at the last step by the decaying curves.
  double final_fraction = 0.1;

  // For steps counted from 0.
  double at(std::int64_t step) const;
};

}  // namespace fsdptrain::optim
