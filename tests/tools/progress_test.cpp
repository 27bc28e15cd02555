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

TEST_CASE("a launcher says how wide the terminal at the other end is, and nonsense is no width") {
  CHECK(parse_columns("120") == 120);
  CHECK(parse_columns("1") == 1);
  for (const char* text : {"", "0", "-1", "x", "12x", " 12", "10001", "99999999999999999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_columns(text));
  }
  CHECK_FALSE(parse_columns(nullptr));
}

TEST_CASE("turns are counted, not measured") {
  CHECK(progress_line("bench", 3, 10, 9, ProgressUnit::Turns) == "bench: 3 of 10, 0:21 left");
}

TEST_CASE("a wide terminal gets a bar, a narrow one what fits of the line") {
  const std::string line = "train: 3 of 10, 0:21 left";
  CHECK(fit_line(line, 0.5, 80) == "[############............] " + line);
  CHECK(fit_line(line, 0, 80) == "[........................] " + line);
  CHECK(fit_line(line, 1, 80) == "[########################] " + line);
  // Bar, brackets, space and line, and the last column free: 53 columns.
  CHECK(fit_line(line, 0.5, 53).size() == 52);
  CHECK(fit_line(line, 0.5, 52) == line);
  CHECK(fit_line(line, 0.5, 26) == line);
  CHECK(fit_line(line, 0.5, 25) == "train: 3 of 10, 0:21 lef");
  CHECK(fit_line(line, 0.5, 1).empty());
  CHECK(fit_line(line, 0.5, 0).empty());
  CHECK(fit_line(line, 7, 80) == fit_line(line, 1, 80));
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
