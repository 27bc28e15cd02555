#include "checkpoint/folder/visibility.h"

#include <doctest/doctest.h>

namespace fsdptrain::checkpoint {
namespace {

using namespace std::chrono_literals;

// Ten seconds pass whenever somebody looks.
class HastyClock final : public comm::Clock {
 public:
  comm::Nanoseconds now() const override { return now_ += 10s; }

 private:
  mutable comm::Nanoseconds now_{};
};

TEST_SUITE("checkpoint/folder/visibility") {
  TEST_CASE("what never comes true is waited for by the clock that is given") {
    const HastyClock clock;
    int looks = 0;
    const auto look = [&] {
      ++looks;
      return false;
    };
    CHECK_FALSE(becomes_true(
        look, 60s, [] {}, clock));
    CHECK(looks > 1);
    CHECK(looks <= 6);
  }

  TEST_CASE("without time it is looked at once, and what is true is not waited for") {
    int looks = 0;
    const auto look = [&] { return ++looks > 1; };
    CHECK_FALSE(becomes_true(look, {}, [] {}));
    CHECK(looks == 1);
    CHECK(becomes_true(look, {}, [] {}));
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
