#include "tools/bench/fma_roof.h"

#include <algorithm>
#include <vector>

#include "kernels/fma_peak.h"
#include "runtime/base/rank_context.h"
#include "tools/bench/timing.h"

namespace fsdptrain::tools {
namespace {

constexpr int kRuns = 10;
constexpr std::int64_t kTasksPerThread = 16;
constexpr std::int64_t kIterations = 200'000;

double best_rate(const Launch& launch) {
  const std::int64_t tasks = kTasksPerThread * launch.pool->threads();
  std::vector<float> sums(static_cast<std::size_t>(tasks));
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const Stopwatch stopwatch;
    const std::int64_t operations = kernels::fma_work(launch, sums.data(), tasks, kIterations);
    best = std::max(best, static_cast<double>(operations) / stopwatch.seconds());
  }
  return best;
}

}  // namespace

FmaRoof measure_fma_roof() {
  const Launch launch = current_context().launch(Device::cpu());
  ThreadPool one(1);
  Launch alone = launch;
  alone.pool = &one;
  return {best_rate(alone), best_rate(launch)};
}

}  // namespace fsdptrain::tools
