#include "tools/bench/timing.h"

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain::tools {
namespace {

TEST_SUITE_BEGIN("tools/bench/timing");

TEST_CASE("the median is the middle one, or the mean of the two in the middle") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 100}) == 3.5);
  CHECK(median({7}) == 7);
  CHECK_THROWS_AS(median({}), Error);
}

TEST_CASE("the spread is the range as a part of the median") {
  CHECK(spread({10, 8, 12}) == doctest::Approx(0.4));
  CHECK(spread({5, 5}) == 0);
}

TEST_CASE("contestants take turns, and the first round does not count") {
  std::string order;
  int calls = 0;
  const auto times = interleave("test",
                                {{"a",
                                  [&] {
                                    order += 'a';
                                    return ++calls;
                                  }},
                                 {"b",
                                  [&] {
                                    order += 'b';
                                    return ++calls;
                                  }}},
                                3);
  CHECK(order == "abababab");
  CHECK(times == std::vector<std::vector<double>>{{3, 5, 7}, {4, 6, 8}});
}

TEST_CASE("a call is repeated until enough time has passed") {
  int calls = 0;
  const double seconds = time_calls([&] { ++calls; }, 1e-3);
  CHECK(calls > 1);
  CHECK(seconds > 0);
  CHECK(seconds * calls >= 1e-3);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
