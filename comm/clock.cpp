#include "comm/clock.h"

#include <fmt/format.h>

namespace fsdptrain::comm {
namespace {

class MonotonicClock final : public Clock {
 public:
  Nanoseconds now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

}  // namespace

std::string to_string(Nanoseconds time) {
  return fmt::format("{:.3g} s", std::chrono::duration<double>(time).count());
}

const Clock& monotonic_clock() {
  static const MonotonicClock clock;
  return clock;
}

}  // namespace fsdptrain::comm
