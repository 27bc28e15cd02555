#pragma once

#include <cstdint>

namespace fsdptrain::optim {

// The learning rate as a function of the step, so that a resumed run continues it.
struct LrSchedule {
  // Wsd: constant behind the warm-up, then linear (warm-up, stable, decay; Hu et al., "MiniCPM",
  // arXiv 2404.06395).
  enum class Curve { Constant, Linear, Cosine, Wsd };

  Curve curve = Curve::Cosine;
  double peak = 0;
  // Linear from 0, exclusive, to the peak.
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;
  // Of the peak, reached at the last step by the decaying curves.
  double final_fraction = 0.1;
  // Of all steps, at their end, in which Wsd decays; to the nearest step, and at least one unless
  // it is 0. The warm-up goes first where both take more steps than there are.
  double decay_fraction = 0.2;

  // For steps counted from 0.
  double at(std::int64_t step) const;
};

}  // namespace fsdptrain::optim
