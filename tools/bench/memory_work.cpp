#include "tools/bench/memory_work.h"

#include <map>

#include "tools/bench/copy_roof.h"
#include "tools/bench/timing.h"

namespace fsdptrain::tools {
namespace {

// Of one sample, so that a clock tick is nothing beside it.
constexpr double kLeastSeconds = 5e-3;

}  // namespace

void measure_memory_work(Report& report, const std::vector<MemoryWork>& works, int rounds) {
  std::map<double, CopyRoof> roofs;
  std::vector<Contestant> contestants;
  for (const MemoryWork& work : works) {
    CopyRoof& roof = roofs.try_emplace(work.bytes, work.bytes).first->second;
    contestants.push_back(
        {"copy", [&roof] { return time_calls([&] { roof.run(); }, kLeastSeconds); }});
    contestants.push_back({work.name, [&work] { return time_calls(work.run, kLeastSeconds); }});
  }
  const auto times = interleave("bench " + report.bench, contestants, rounds);
  for (std::size_t i = 0; i < works.size(); ++i) {
    const MemoryWork& work = works[i];
    const double copy_rate = roofs.at(work.bytes).bytes() / median(times[2 * i]);
    const double rate = work.bytes / median(times[2 * i + 1]);
    report.figures.push_back({work.name, rate * 1e-9, "GB/s"});
    report.figures.push_back({work.name + ".of_copy", rate / copy_rate, "share"});
  }
}

}  // namespace fsdptrain::tools
