#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load/loader.h"
#include "comm/world.h"
#include "runtime/base/memory_counters.h"
#include "tools/config/changes.h"
#include "tools/config/config.h"
#include "tools/run/reporter.h"
#include "tools/stopwatch.h"
#include "tools/train/datasets.h"
#include "tools/train/rank_waits.h"

namespace fsdptrain::tools {

// The memory that a rank of a run has counted, beside what was planned for it, in a line of text.
using CompareMemory = std::function<std::string(const Config& config, const comm::Member& member,
                                                int threads, const MemoryCounters& measured)>;

// What a run says of its course: speed, memory and waits, which all ranks find out together and
// rank 0 tells. All ranks do the same.
class RunReport {
 public:
  struct Options {
    // Whether this rank tells; the others keep silent.
    bool tells = false;
    // Whether each rank has processors that it shares with no other.
    bool is_bound = false;
    // Empty: nobody plans.
    CompareMemory compare_memory = {};
  };

  // Measures the rate of the machine, on the rank that tells.
  RunReport(const Config& config, comm::World& world, Options options);

  // Where others write; of a rank that does not tell, nothing happens.
  Reporter& reporter() { return reporter_; }
  // Operations per second of the CPU; none where another device trains, and on ranks that do not
  // tell.
  std::optional<double> measured_rate() const { return measured_rate_; }
  double flops_per_token() const { return flops_per_token_; }

  // What was there before: the path that another run was moved to, what is allowed to be another
  // configuration, and what the run goes on from.
  void tell_start(const std::optional<std::filesystem::path>& moved,
                  const std::vector<ConfigChange>& changes,
                  const std::optional<checkpoint::Loaded>& loaded, std::int64_t attempt);
  // The run begins with so many steps done.
  void begin(const Datasets& datasets, std::int64_t num_parameters, std::int64_t steps_done);
  // What is measured begins anew behind other work.
  void begin_interval();
  // A step was computed, whether or not it is reported.
  void count_step() { ++interval_.steps; }
  // So many steps are done; of the last one. Collective.
  void step(std::int64_t steps_done, double loss, double grad_norm, double lr);
  // The run is over, its files are written. Collective.
  void end(std::int64_t steps_done, const std::string& weights);

  // Since begin().
  double seconds() const { return stopwatch_.seconds(); }

 private:
  struct Interval {
    Stopwatch stopwatch;
    std::int64_t steps = 0;
  };

  // Of all ranks. Collective.
  std::int64_t sum(std::int64_t value);
  void compare_memory(const MemoryCounters& measured);

  const Config& config_;
  comm::World& world_;
  Options options_;
  double flops_per_token_;
  std::optional<double> measured_rate_;
  Reporter reporter_;
  RankWaits waits_;
  Stopwatch stopwatch_;
  Interval interval_;
  // Steps done when the run began.
  std::int64_t first_step_ = 0;
};

}  // namespace fsdptrain::tools
