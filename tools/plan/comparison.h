#pragma once

#include <string>

#include "tools/plan/memory_plan.h"

namespace fsdptrain::tools {

// For the end of a run, one line: what the allocator of a rank counted, beside the plan of that
// rank, by category where they differ. A run that stopped before its second step has counted less.
std::string planned_and_measured(const MemoryPlan& plan, const MemoryCounters& measured);

}  // namespace fsdptrain::tools
