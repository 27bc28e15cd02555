#include <fmt/format.h>
#include <iostream>
#include <string>
#include <vector>

#include "tools/bench/bench.h"
#include "tools/bench/process_memory.h"
#include "tools/bench/step_model.h"
#include "tools/bench/timing.h"
#include "tools/standard_output.h"

namespace fsdptrain::tools {

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
  Report report = new_report("step");
  if (!seconds.empty()) {
    report.figures.push_back({"step", median(seconds), "s"});
  }
  report.figures.push_back({"peak_memory", peak_resident_bytes() / kMiB, "MiB"});
  return report;
}

}  // namespace fsdptrain::tools
