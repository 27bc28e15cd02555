#pragma once

#include "tools/config/config.h"
#include "tools/run/run_folder.h"
#include "tools/run/run_report.h"

namespace fsdptrain::tools {

struct TrainOptions {
  RunFolder::Options folder = {};
  // So many threads of this process train as ranks, run.threads divided among them. 0: this process
  // is one rank, of the job that its launcher has started.
  int threads_as_ranks = 0;
  // For the end of the run; empty: nobody plans.
  CompareMemory compare_memory = {};
};

// Trains by the configuration and fills the run's folder (docs/formats.md); a run that is there
// already goes on from its last checkpoint, or is done. Returns the exit code: Done; when SIGINT or
// SIGTERM ended it after the step or validation under way, weights and metrics written, Saved where
// a checkpoint is, too, else Signalled + n; a second signal ends the process at once. Error if the
// loss or the gradient stops being finite and train.non_finite says so, with the weights written.
// IoError, with the weights written, if lines of metrics could not be. What one rank throws ends
// all of them. ConfigError for more ranks than a step has micro-batches, and for threads as ranks
// in a process that is a rank itself. Under a launcher rank 0 alone writes and prints.
int train(const Config& config, const TrainOptions& options);

}  // namespace fsdptrain::tools
