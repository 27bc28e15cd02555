#include "comm/init/wait_notice.h"

#include <chrono>
#include <vector>

#include <doctest/doctest.h>

namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;

class HandClock final : public Clock {
 public:
  Nanoseconds now() const override { return now_; }
  void advance(Nanoseconds time) { now_ += time; }

 private:
  Nanoseconds now_ = 1h;
};

}  // namespace

TEST_SUITE("comm/wait_notice") {
  TEST_CASE("a wait is told of when patience is over, then ever more rarely") {
    HandClock clock;
    WaitNotice notice(5s, clock);
    std::vector<int> told;
    for (int second = 0; second <= 600; ++second) {
      if (notice.is_due()) {
        told.push_back(second);
      }
      clock.advance(1s);
    }
    CHECK(told == std::vector<int>{5, 15, 45, 135, 405});
  }
}

}  // namespace fsdptrain::comm
