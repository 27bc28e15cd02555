#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/world.h"
#include "tools/config/config.h"
#include "tools/run/run_folder.h"
#include "tools/run/run_record.h"
#include "tools/stopwatch.h"

namespace fsdptrain::tools {

// What rank 0 keeps of a run beside its trainer. It outlives the ranks: how the run ended is known
// when all of them have.
struct Account {
  std::optional<RunFolder> folder;
  std::optional<RunRecord> record;
  // Since the first step.
  Stopwatch stopwatch;
  std::int64_t steps_done = 0;
};

// How a run begins, the same on all ranks.
struct RunStart {
  // It has come to its end before: there is nothing to do.
  bool is_done = false;
  // It goes on from its last checkpoint, or anew where it has none.
  bool resumes = false;
  // Where its checkpoints are; none: they are neither read nor written.
  std::optional<std::filesystem::path> checkpoints = {};
  // ConfigHash::numerics that a checkpoint may have.
  std::set<std::string> numerics = {};
  // DataFile::fingerprint of the files that it has read so far, in their order; empty where they
  // may be others.
  std::vector<std::string> fingerprints = {};

  // Whether its configuration has changed at any time: then a checkpoint may lack what is new.
  bool is_changed() const { return numerics.size() > 1; }
};

// Claims the run's folder on rank 0, which has an account, and tells all ranks what it found; where
// the folder is refused, all ranks throw. Collective.
RunStart begin_run(const Config& config, const RunFolder::Options& options, comm::World& world,
                   Account* account);

// ConfigError naming a file that is not the one that the run has read so far.
void check_data(const RunStart& start, const std::vector<DataFile>& files);

}  // namespace fsdptrain::tools
