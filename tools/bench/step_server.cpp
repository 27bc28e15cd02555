#include <fmt/format.h>
#include <iostream>
#include <string>
#include <vector>

#include "tools/bench/bench.h"
#include "tools/bench/one_process_step.h"
#include "tools/bench/process_memory.h"
#include "tools/bench/rank_turns.h"
#include "tools/bench/sharded_step.h"
#include "tools/bench/step_model.h"
#include "tools/bench/step_ranks.h"
#include "tools/bench/timing.h"
#include "tools/standard_output.h"

namespace fsdptrain::tools {

namespace {

Report report_of(const std::vector<double>& seconds, double peak_bytes) {
  Report report = new_report("step");
  if (!seconds.empty()) {
    report.figures.push_back({"step", median(seconds), "s"});
  }
  report.figures.push_back({"peak_memory", peak_bytes / kMiB, "MiB"});
  return report;
}

}  // namespace

Report serve_steps(const Config& config) {
  StepModel model(config);
  model.run();
  model.run();
  print_now("ready\n");
  std::vector<double> seconds;
  for (std::string line; std::getline(std::cin, line);) {
    seconds.push_back(model.run());
    print_now(fmt::format("{:.6f}\n", seconds.back()));
  }
  return report_of(seconds, peak_resident_bytes());
}

Report serve_rank_steps(const Config& config, comm::Job& job) {
  comm::World& world = job.world();
  const bool is_first = world.rank() == 0;
  RankTurns turns(world);
  ShardedStep step(config, world.group());
  const data::Batch batch = rank_batch(config, world.rank());
  const auto run = [&] { return turns.together([&] { return step.run(batch); }); };
  const auto is_asked = [&] {
    std::string line;
    return turns.on_rank_0([&] { return std::getline(std::cin, line) ? 1 : 0; }) > 0;
  };
  run();
  run();
  if (is_first) {
    print_now("ready\n");
  }
  std::vector<double> seconds;
  while (is_asked()) {
    seconds.push_back(run());
    if (is_first) {
      print_now(fmt::format("{:.6f}\n", seconds.back()));
    }
  }
  return report_of(seconds, turns.largest(peak_resident_bytes()));
}

}  // namespace fsdptrain::tools
