#pragma once

#include <functional>

#include "comm/world.h"

namespace fsdptrain::tools {

// Times of what several ranks do, by their control group: all get the same. Collective, like all
// that it is asked to run.
class RankTurns {
 public:
  explicit RankTurns(comm::World& world) : world_(world) {}

  // All begin together; the seconds of the slowest.
  double together(const std::function<double()>& run);
  // Rank 0 alone, while the others sleep.
  double on_rank_0(const std::function<double()>& run);
  // Of the values of all ranks.
  double largest(double value);

 private:
  comm::World& world_;
};

}  // namespace fsdptrain::tools
