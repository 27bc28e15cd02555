#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fakecuda/fakecuda.h"

// Reports as doctest sees them.
namespace fsdptrain::fakecuda {

// For Options::unseen: the test fails, and goes on.
inline void fail_test(const std::string& unseen) {
  FAIL_CHECK(unseen);
}

inline Options checked(Options options) {
  options.unseen = fail_test;
  return options;
}

inline std::string describe_all(const std::vector<Report>& reports) {
  std::string text;
  for (const Report& report : reports) {
    text += describe(report) + "\n";
  }
  return text;
}

inline void expect_no_reports(Session& session) {
  const std::string text = describe_all(session.reports());
  CHECK_MESSAGE(text.empty(), text);
}

// There are reports, all of this kind, and one of them has all of these texts in its description.
inline void expect_reported(Session& session, ReportKind kind,
                            const std::vector<std::string_view>& texts = {}) {
  const std::vector<Report> reports = session.reports();
  const std::string all = describe_all(reports);
  INFO(all);
  CHECK_FALSE(reports.empty());
  CHECK(std::ranges::all_of(reports, [&](const Report& report) { return report.kind == kind; }));
  CHECK(std::ranges::any_of(reports, [&](const Report& report) {
    const std::string text = describe(report);
    return std::ranges::all_of(
        texts, [&](std::string_view part) { return text.find(part) != std::string::npos; });
  }));
}

}  // namespace fsdptrain::fakecuda
