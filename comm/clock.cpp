#include "comm/clock.h"

namespace fsdptrain::comm {
namespace {

class MonotonicClock final : public Clock {
 public:
  Nanoseconds now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

}  // namespace

const Clock& monotonic_clock() {
  static const MonotonicClock clock;
  return clock;
}

}  // namespace fsdptrain::comm
