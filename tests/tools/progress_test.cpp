#include "tools/progress.h"

#include <doctest/doctest.h>

namespace fsdptrain::tools {
namespace {

TEST_SUITE_BEGIN("tools/progress");

TEST_CASE("the line states part, rate and time left") {
  CHECK(progress_line("prepare", 25'000'000, 100'000'000, 2) ==
        "prepare: 25 % of 100.0 MB, 12.5 MB/s, 0:06 left");
  CHECK(progress_line("prepare", 1'000'000, 1'000'000'000, 1) ==
        "prepare: 0 % of 1000.0 MB, 1.0 MB/s, 16:39 left");
}

TEST_CASE("sizes that do not fit give no nonsense") {
  CHECK(progress_line("x", 0, 0, 0) == "x: 0 % of 0.0 MB, 0.0 MB/s, 0:00 left");
  CHECK(progress_line("x", 3'000'000, 2'000'000, 1) == "x: 100 % of 3.0 MB, 3.0 MB/s, 0:00 left");
}

TEST_CASE("turns are counted, not measured") {
  CHECK(progress_line("bench", 3, 10, 9, ProgressUnit::Turns) == "bench: 3 of 10, 0:21 left");
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
