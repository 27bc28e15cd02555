#include "tools/plan/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include "tools/plan/byte_size.h"

namespace fsdptrain::tools {
namespace {

// "+12.0 MiB"
std::string difference_text(std::int64_t nbytes) {
  return (nbytes < 0 ? "-" : "+") + size_text(nbytes < 0 ? -nbytes : nbytes);
}

}  // namespace

std::string planned_and_measured(const MemoryPlan& plan, const MemoryCounters& measured) {
  std::string text = fmt::format("memory of rank {}: {} in use at the peak", plan.rank,
                                 size_text(measured.peak_total));
  std::vector<std::string> differences;
  for (std::size_t i = 0; i < kNumMemoryCategories; ++i) {
    const std::int64_t difference = measured.peak[i] - plan.memory.peak[i];
    if (difference != 0) {
      differences.push_back(fmt::format("{} {}", name_of(static_cast<MemoryCategory>(i)),
                                        difference_text(difference)));
    }
  }
  if (measured.peak_total == plan.peak() && differences.empty()) {
    return text + ", as planned";
  }
  text += fmt::format(", planned {}", size_text(plan.peak()));
  return differences.empty() ? text : text + fmt::format(": {}", fmt::join(differences, ", "));
}

}  // namespace fsdptrain::tools
