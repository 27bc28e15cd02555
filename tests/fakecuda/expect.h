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

inline bool any_has(const std::vector<Report>& reports,
                    const std::vector<std::string_view>& texts) {
  return std::ranges::any_of(reports, [&](const Report& report) {
    const std::string text = describe(report);
    return std::ranges::all_of(
        texts, [&](std::string_view part) { return text.find(part) != std::string::npos; });
  });
}

// The description of one report has all these texts; others may follow from the same mistake.
inline void expect_among_reports(Session& session, const std::vector<std::string_view>& texts) {
  const std::vector<Report> reports = session.reports();
  INFO(describe_all(reports));
  CHECK(any_has(reports, texts));
}

// There are reports, all of this kind, and the description of one has all these texts.
inline void expect_reported(Session& session, ReportKind kind,
                            const std::vector<std::string_view>& texts = {}) {
  const std::vector<Report> reports = session.reports();
  INFO(describe_all(reports));
  CHECK_FALSE(reports.empty());
  CHECK(std::ranges::all_of(reports, [&](const Report& report) { return report.kind == kind; }));
  CHECK(any_has(reports, texts));
}

}  // namespace fsdptrain::fakecuda
