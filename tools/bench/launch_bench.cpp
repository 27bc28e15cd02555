#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "runtime/base/error.h"
#include "tools/bench/bench.h"
#include "tools/bench/timing.h"

namespace fsdptrain::tools {
namespace {

// What the launcher may add to 4 ranks.
constexpr int kRanksOfDemand = 4;
constexpr double kMostOverhead = 0.3;

// A process of this program on standard streams that lead nowhere.
pid_t start(const char* path, std::vector<std::string> arguments) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  pid_t id = 0;
  const int error = ::posix_spawnp(&id, path, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  check<IoError>(error == 0, "bench launch: {} does not start: {}", path, std::strerror(error));
  return id;
}

void wait_for(pid_t id) {
  int status = 0;
  const bool has_ended = ::waitpid(id, &status, 0) == id;
  check(has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "bench launch: a process ended with status {}", status);
}

double time_launched(int num_ranks) {
  const Stopwatch stopwatch;
  wait_for(start("/proc/self/exe", {"fsdptrain", "launch", "--nproc-per-node",
                                    std::to_string(num_ranks), "--", "true"}));
  return stopwatch.seconds();
}

double time_bare(int num_ranks) {
  const Stopwatch stopwatch;
  std::vector<pid_t> ids;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ids.push_back(start("true", {"true"}));
  }
  for (const pid_t id : ids) {
    wait_for(id);
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
