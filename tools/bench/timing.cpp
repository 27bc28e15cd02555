#include "tools/bench/timing.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "runtime/base/error.h"
#include "tools/progress.h"

namespace fsdptrain::tools {

double median(std::vector<double> samples) {
  check(!samples.empty(), "median: there are no samples");
  std::ranges::sort(samples);
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

double spread(const std::vector<double>& samples) {
  const double middle = median(samples);
  const auto [least, most] = std::ranges::minmax(samples);
  return (most - least) / middle;
}

std::vector<std::vector<double>> interleave(const std::string& what,
                                            const std::vector<Contestant>& contestants,
                                            int rounds) {
  std::vector<std::vector<double>> times(contestants.size());
  const auto turns = static_cast<std::uint64_t>(rounds + 1) * contestants.size();
  std::optional<Progress> progress;
  if (!what.empty()) {
    progress.emplace(what, turns, ProgressUnit::Turns);
  }
  std::uint64_t done = 0;
  for (int round = 0; round <= rounds; ++round) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      settle();
      const double seconds = contestants[i].run();
      if (round > 0) {
        times[i].push_back(seconds);
      }
      ++done;
      if (progress) {
        progress->update(done);
      }
    }
  }
  return times;
}

void settle() {
  // OpenMP's workers spin for some 10 ms by default.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
}

double time_calls(const std::function<void()>& call, double least_seconds) {
  const Stopwatch stopwatch;
  std::int64_t calls = 0;
  do {
    call();
    ++calls;
  } while (stopwatch.seconds() < least_seconds);
  return stopwatch.seconds() / static_cast<double>(calls);
}

}  // namespace fsdptrain::tools
