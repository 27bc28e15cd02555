#include "tools/bench/pool_cost.h"

#include <vector>

#include "runtime/base/rank_context.h"
#include "tools/bench/timing.h"

namespace fsdptrain::tools {

double measure_pool_region() {
  constexpr int kBatches = 21;
  constexpr int kRegions = 1000;
  ThreadPool& pool = current_context().pool();
  std::vector<double> seconds;
  for (int batch = 0; batch < kBatches; ++batch) {
    const Stopwatch stopwatch;
    for (int region = 0; region < kRegions; ++region) {
      pool.run(
          pool.threads(), [](void*, std::int64_t, int) {}, nullptr);
    }
    seconds.push_back(stopwatch.seconds() / kRegions);
  }
  return median(seconds);
}

}  // namespace fsdptrain::tools
