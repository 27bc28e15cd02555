#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/plan/advice.h"

// A plan as it is printed.
namespace fsdptrain::tools {

struct PlanReport {
  const Config& config;
  const MemoryPlan& plan;
  // Resident memory of a process that has not begun yet.
  std::int64_t process = 0;
  // How much there is for a rank; with what was tried if that is not enough.
  std::optional<std::int64_t> limit = {};
  std::vector<Suggestion> suggestions = {};

  std::int64_t needed() const { return needed_memory(config, plan, process); }
  bool fits() const { return !limit || needed() <= *limit; }
};

// For people.
std::string as_text(const PlanReport& report);
// One JSON object (docs/planning.md), with a line end.
std::string as_json(const PlanReport& report);

}  // namespace fsdptrain::tools
