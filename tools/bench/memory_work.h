#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace fsdptrain::tools {

// Something whose roof is a copy: what it must read and write at least, in bytes.
struct MemoryWork {
  std::string name;
  double bytes = 0;
  std::function<void()> run;
};

// Times each in turns with a copy of as many bytes, which caches help as much. Adds to the report
// the bytes per second of each, and the share of the copy's.
void measure_memory_work(Report& report, const std::vector<MemoryWork>& works, int rounds);

}  // namespace fsdptrain::tools
