#include "runtime/optim/lr_schedule.h"

#include <cstdint>
#include <initializer_list>
#include <vector>

#include <doctest/doctest.h>

namespace fsdptrain::optim {

using doctest::Approx;

TEST_SUITE("runtime/optim/lr_schedule") {
  TEST_CASE("the rate warms up from above 0 to the peak") {
    for (const auto shape :
         {LrSchedule::Curve::Constant, LrSchedule::Curve::Linear, LrSchedule::Curve::Cosine}) {
      const LrSchedule schedule{shape, 2.0, 4, 100, 0.1};
      CHECK(schedule.at(0) == 0.5);
      CHECK(schedule.at(1) == 1.0);
      CHECK(schedule.at(3) == 2.0);
      CHECK(schedule.at(4) == 2.0);
    }
    CHECK(LrSchedule{LrSchedule::Curve::Cosine, 3.0, 0, 10, 0.1}.at(0) == 3.0);
  }

  TEST_CASE("the decaying shapes end at their fraction of the peak and stay there") {
    const LrSchedule linear{LrSchedule::Curve::Linear, 2.0, 4, 105, 0.1};
    const LrSchedule cosine{LrSchedule::Curve::Cosine, 2.0, 4, 105, 0.1};
    const LrSchedule constant{LrSchedule::Curve::Constant, 2.0, 4, 105, 0.1};
    CHECK(linear.at(54) == Approx(1.1));
    CHECK(cosine.at(54) == Approx(1.1));
    CHECK(linear.at(29) == Approx(2 - 0.25 * 1.8));
    CHECK(cosine.at(29) == Approx(0.2 + 0.9 * (1 + 0.70710678118654752)));
    for (const std::int64_t step : {104, 105, 1000}) {
      CHECK(linear.at(step) == Approx(0.2).epsilon(1e-12));
      CHECK(cosine.at(step) == Approx(0.2).epsilon(1e-12));
      CHECK(constant.at(step) == 2.0);
    }
    CHECK(linear.at(103) > linear.at(104));
    CHECK(cosine.at(103) > cosine.at(104));
  }

  TEST_CASE("wsd stays at the peak and falls in a line over its last steps") {
    // 20 steps: 4 of warm-up, 11 at the peak, 5 down to a quarter of it.
    const LrSchedule schedule{LrSchedule::Curve::Wsd, 2.0, 4, 20, 0.25, 0.25};
    const std::vector<double> expected{0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0,
                                       2.0, 2.0, 2.0, 2.0, 2.0, 1.7, 1.4, 1.1, 0.8, 0.5};
    for (std::size_t step = 0; step < expected.size(); ++step) {
      CAPTURE(step);
      CHECK(schedule.at(static_cast<std::int64_t>(step)) == Approx(expected[step]).epsilon(1e-14));
    }
    CHECK(schedule.at(14) == 2.0);
    CHECK(schedule.at(19) == 0.5);
    CHECK(schedule.at(1000) == 0.5);
  }

  TEST_CASE("wsd decays in at least one step, in none if told so, and behind the warm-up only") {
    CHECK(LrSchedule{LrSchedule::Curve::Wsd, 1.0, 0, 3, 0.5, 0.01}.at(1) == 1.0);
    CHECK(LrSchedule{LrSchedule::Curve::Wsd, 1.0, 0, 3, 0.5, 0.01}.at(2) == 0.5);
    CHECK(LrSchedule{LrSchedule::Curve::Wsd, 1.0, 0, 3, 0.5, 0.0}.at(2) == 1.0);
    // 0.07 * 100 is above 7 in float64: still seven steps.
    CHECK(LrSchedule{LrSchedule::Curve::Wsd, 1.0, 0, 100, 0.0, 0.07}.at(92) == 1.0);
    CHECK(LrSchedule{LrSchedule::Curve::Wsd, 1.0, 0, 100, 0.0, 0.07}.at(93) < 1.0);
    const LrSchedule all_decay{LrSchedule::Curve::Wsd, 1.0, 6, 10, 0.0, 1.0};
    CHECK(all_decay.at(5) == 1.0);
    CHECK(all_decay.at(6) == 0.75);
    CHECK(all_decay.at(9) == 0.0);
    const LrSchedule all_warmup{LrSchedule::Curve::Wsd, 1.0, 5, 5, 0.0, 0.5};
    CHECK(all_warmup.at(4) == 1.0);
  }

  TEST_CASE("a run that is all warm-up never divides by nothing") {
    const LrSchedule schedule{LrSchedule::Curve::Cosine, 1.0, 5, 5, 0.0};
    CHECK(schedule.at(4) == 1.0);
    CHECK(schedule.at(5) == 1.0);
    CHECK(schedule.at(6) == Approx(0.0));
    CHECK(LrSchedule{LrSchedule::Curve::Linear, 1.0, 0, 1, 0.5}.at(0) == 1.0);
  }
}

}  // namespace fsdptrain::optim
