#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "tools/bench/bench.h"
#include "tools/bench/timing.h"

namespace fsdptrain::tools {
namespace {

// What the launcher may add to 4 ranks.
constexpr int kRanksOfDemand = 4;
constexpr double kMostOverhead = 0.3;

// On standard streams that lead nowhere.
Process start(const std::string& program, std::vector<std::string> arguments) {
  const Descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const int number = nothing.number();
  return Process(
      {.program = program,
       .arguments = std::move(arguments),
       .descriptors = {{STDIN_FILENO, number}, {STDOUT_FILENO, number}, {STDERR_FILENO, number}}});
}

void wait_for(Process& process) {
  const ProcessEnd end = process.wait();
  check(end == ProcessEnd{}, "bench launch: a process {}", to_string(end));
}

double time_launched(int num_ranks) {
  const Stopwatch stopwatch;
  Process launcher = start("/proc/self/exe", {"fsdptrain", "launch", "--nproc-per-node",
                                              std::to_string(num_ranks), "--", "true"});
  wait_for(launcher);
  return stopwatch.seconds();
}

double time_bare(int num_ranks) {
  const Stopwatch stopwatch;
  std::vector<Process> processes;
  for (int rank = 0; rank < num_ranks; ++rank) {
    processes.push_back(start("true", {"true"}));
  }
  for (Process& process : processes) {
    wait_for(process);
  }
  return stopwatch.seconds();
}

}  // namespace

Report bench_launch(int num_ranks, int rounds) {
  const auto times = interleave("bench launch",
                                {{"launched", [num_ranks] { return time_launched(num_ranks); }},
                                 {"bare", [num_ranks] { return time_bare(num_ranks); }}},
                                rounds);
  const double launched = median(times[0]);
  const double bare = median(times[1]);
  Report report = new_report("launch");
  Figure overhead{"overhead", launched - bare, "s"};
  if (num_ranks == kRanksOfDemand) {
    overhead.ceiling = kMostOverhead;
  }
  report.figures = {{"ranks", static_cast<double>(num_ranks), "processes"},
                    {"launched", launched, "s"},
                    {"bare", bare, "s"},
                    overhead,
                    {"launched_spread", spread(times[0]), "share"}};
  return report;
}

}  // namespace fsdptrain::tools
