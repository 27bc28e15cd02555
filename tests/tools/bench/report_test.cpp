#include "tools/bench/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::tools {
namespace {

TEST_SUITE_BEGIN("tools/bench/report");

Report sample() {
  return {"gemm",
          "0123456789ab",
          "some CPU, 2 processors",
          "avx2",
          2,
          {{"rate", 12345.6, "GFLOP/s"},
           {"part", 0.5, "share"},
           {"good", 0.8, "share", 0.75},
           {"bad", 7, "blocks", std::nullopt, 0}}};
}

TEST_CASE("a report is one JSON object on one line with the bounds that a figure has") {
  const std::string text = to_json(sample());
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text == R"({"bench":"gemm","commit":"0123456789ab","machine":"some CPU, 2 processors",)"
                R"("isa":"avx2","threads":2,"figures":[)"
                R"({"name":"rate","value":12345.6,"unit":"GFLOP/s"},)"
                R"({"name":"part","value":0.5,"unit":"share"},)"
                R"({"name":"good","value":0.8,"unit":"share","floor":0.75},)"
                R"({"name":"bad","value":7.0,"unit":"blocks","ceiling":0.0}]})");
}

TEST_CASE("a figure that is no finite number is refused as JSON, which has no such number") {
  for (const double value : {std::nan(""), HUGE_VAL}) {
    Report report = sample();
    report.figures[1].value = value;
    CHECK_THROWS_WITH_AS(to_json(report), doctest::Contains("the figure part is"), Error);
  }
}

TEST_CASE("a table has a line for each figure, a bar for shares and a verdict for bounds") {
  CHECK(to_table(sample()) ==
        "gemm: some CPU, 2 processors, isa avx2, 2 threads, commit 0123456789ab\n"
        "  rate      12346 GFLOP/s   \n"
        "  part        0.5 share       ██████████··········\n"
        "  good        0.8 share       ████████████████····  at least 0.75: yes\n"
        "  bad           7 blocks      at most 0: NO\n");
}

TEST_CASE("warnings stand at the end, in a report that has any") {
  Report report = sample();
  report.figures.clear();
  report.warnings = {"it is too small", "and slow"};
  CHECK(to_json(report).ends_with(R"("figures":[],"warnings":["it is too small","and slow"]})"));
  CHECK(to_table(report).ends_with("\n  warning: it is too small\n  warning: and slow\n"));
}

TEST_CASE("bounds include their ends and exclude what is no number") {
  CHECK(within_bounds({"x", 1, "", 1.0, 1.0}));
  CHECK_FALSE(within_bounds({"x", 0.9, "", 1.0}));
  CHECK_FALSE(within_bounds({"x", 1.1, "", std::nullopt, 1.0}));
  CHECK_FALSE(within_bounds({"x", std::nan(""), ""}));
}

TEST_CASE("a new report says where it was made") {
  const Report report = new_report("ops");
  CHECK(report.bench == "ops");
  CHECK_FALSE(report.commit.empty());
  CHECK(report.machine.find(" processors") != std::string::npos);
  CHECK(report.isa == name_of(current_context().isa()));
  CHECK(report.threads == current_context().pool().threads());
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
