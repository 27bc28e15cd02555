#include "comm/nccl/host_wait.h"

#include <algorithm>
#include <thread>

#include "comm/error.h"
#include "runtime/base/host_schedule.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm::nccl {
namespace {

// Operations take tens of microseconds; those that take longer are looked at less often.
constexpr Nanoseconds kShortestRest = std::chrono::microseconds(5);
constexpr Nanoseconds kLongestRest = std::chrono::milliseconds(1);

}  // namespace

bool HostWait::has_failed() const {
  try {
    link_.check_failure();
    return false;
  } catch (const PeerError&) {
    return true;
  }
}

bool HostWait::until(const std::function<bool()>& ready, Nanoseconds timeout) const {
  if (HostSchedule* const schedule = current_context().schedule; schedule != nullptr) {
    bool is_ready = false;
    schedule->wait([&] {
      is_ready = ready();
      return is_ready || has_failed();
    });
    if (!is_ready) {
      link_.check_failure();
    }
    return true;
  }
  const Deadline deadline(link_.clock(), timeout);
  Nanoseconds pause = kShortestRest;
  while (!ready()) {
    link_.check_failure();
    if (deadline.passed()) {
      return false;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestRest);
  }
  return true;
}

}  // namespace fsdptrain::comm::nccl
