#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/clock.h"
#include "comm/world.h"

// Which rank the others wait for.
namespace fsdptrain::tools {

// Of an interval; by rank of the world.
struct WaitSummary {
  // How long the rank waited for others.
  std::vector<double> wait_seconds;
  // How long the others waited for it, all together.
  std::vector<double> waited_for_seconds;
  // The rank that was waited for longest, the first of those that are equal; none where nobody
  // waited.
  std::optional<int> straggler;
};

// Of how long each rank waited, and was waited for, in nanoseconds.
WaitSummary summarize(std::span<const std::int64_t> waited,
                      std::span<const std::int64_t> waited_for);

// Waits in training's collectives since the interval began, from one rank's view.
class RankWaits {
 public:
  // `world` must outlive it. The first interval begins here.
  explicit RankWaits(comm::World& world) : world_(world) { restart(); }

  // Begins an interval. Not collective, but all ranks should do it at the same step.
  void restart();
  // Of the interval so far, the same on all ranks; none where a device waits, which nobody times.
  // Collective, by the control group.
  std::optional<WaitSummary> summary();

 private:
  comm::World& world_;
  // When the interval began.
  std::vector<comm::Nanoseconds> begin_;
};

}  // namespace fsdptrain::tools
