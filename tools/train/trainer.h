#pragma once

#include "tools/config.h"
#include "tools/train/run_folder.h"

namespace fsdptrain::tools {

struct TrainOptions {
  RunFolder::Existing existing = RunFolder::Existing::Refuse;
  // Threads of this process that train together, run.threads divided among them; at least 1.
  int num_ranks = 1;
};

// Trains by the configuration and fills the run's folder (docs/formats.md). Returns the exit code:
// Done, or Signalled + n when SIGINT or SIGTERM ended it after the step or validation under way,
// weights and metrics written; a second signal ends the process at once. Error if the loss or the
// gradient stops being finite and train.non_finite says so, with the weights written. IoError, with
// the weights written, if anything else could not be. What one rank throws ends all of them.
// ConfigError for more ranks than a step has micro-batches.
int train(const Config& config, const TrainOptions& options);

}  // namespace fsdptrain::tools
