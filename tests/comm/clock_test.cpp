#include "comm/clock.h"

#include <doctest/doctest.h>

namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;

class SetClock final : public Clock {
 public:
  Nanoseconds now() const override { return time; }

  Nanoseconds time{5s};
};

}  // namespace

TEST_SUITE("comm/clock") {
  TEST_CASE("a deadline passes when its time is over and then has none left") {
    SetClock clock;
    const Deadline deadline(clock, 2s);
    CHECK(deadline.timeout() == 2s);
    CHECK(deadline.left() == 2s);
    clock.time += 1999ms;
    CHECK_FALSE(deadline.passed());
    CHECK(deadline.left() == 1ms);
    clock.time += 1ms;
    CHECK(deadline.passed());
    clock.time += 1h;
    CHECK(deadline.left() == 0s);
  }

  TEST_CASE("a timeout without end never passes") {
    SetClock clock;
    const Deadline deadline(clock, Nanoseconds::max());
    clock.time += 100000h;
    CHECK_FALSE(deadline.passed());
    CHECK(deadline.left() > 100000h);
  }

  TEST_CASE("the monotonic clock never goes back") {
    const Nanoseconds before = monotonic_clock().now();
    CHECK(monotonic_clock().now() >= before);
  }
}

}  // namespace fsdptrain::comm
