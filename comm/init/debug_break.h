#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "comm/init/environment.h"

// FSDPTRAIN_BREAK_RANK=R[@STEP]: one rank stops for a debugger. The others wait for it: as long as
// the variable is set, collectives have no deadline.
namespace fsdptrain::comm {

struct BreakPoint {
  int rank = 0;
  // Nothing: at the first.
  std::optional<std::int64_t> step = {};
};

// Nothing where the variable is not set; ConfigError for a value that is none, or for a rank that
// is not of the world.
std::optional<BreakPoint> read_break_point(const Lookup& lookup, int world_size);

// Of one rank, in a process that has a WhereSignal: SIGCONT is held back by all threads.
class DebugBreak {
 public:
  DebugBreak(std::optional<BreakPoint> point, int rank) : point_(point), rank_(rank) {}

  bool is_set() const { return point_.has_value(); }
  // Returns at once, but where the rank is to stop before this step: there it says on standard
  // error how to attach a debugger, once, and waits until one is attached or SIGCONT arrives.
  // It goes on, too, when `is_stopped` becomes true: the caller then stops as it does without.
  void at(std::int64_t step, const std::function<bool()>& is_stopped = {});

 private:
  std::optional<BreakPoint> point_;
  int rank_;
  bool is_over_ = false;
};

}  // namespace fsdptrain::comm
