#include "tools/machine/fma_roof.h"

#include <algorithm>
#include <vector>

#include "kernels/fma_peak.h"
#include "runtime/base/rank_context.h"
#include "tools/stopwatch.h"

namespace fsdptrain::tools {
namespace {

constexpr int kRuns = 10;
constexpr std::int64_t kTasksPerThread = 16;
constexpr std::int64_t kIterations = 200'000;
// A run of some 2 ms on a thread of 3 GHz.
constexpr std::int64_t kShortIterations = 30'000;

// The rate of one run.
double run_once(const Launch& launch, std::int64_t iterations) {
  const std::int64_t tasks = kTasksPerThread * launch.pool->threads();
  std::vector<float> sums(static_cast<std::size_t>(tasks));
  const Stopwatch stopwatch;
  const std::int64_t operations = kernels::fma_work(launch, sums.data(), tasks, iterations);
  return static_cast<double>(operations) / stopwatch.seconds();
}

double best_rate(const Launch& launch) {
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    best = std::max(best, run_once(launch, kIterations));
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

double measure_fma_rate(double seconds) {
  const Launch launch = current_context().launch(Device::cpu());
  const Stopwatch stopwatch;
  double best = 0;
  do {
    best = std::max(best, run_once(launch, kShortIterations));
  } while (stopwatch.seconds() < seconds);
  return best;
}

}  // namespace fsdptrain::tools
