#pragma once

#include "tools/config.h"
#include "tools/train/run_folder.h"

namespace fsdptrain::tools {

// Trains by the configuration and fills the run's folder (docs/formats.md). Returns the exit code:
// Done, or Signalled + n when SIGINT or SIGTERM ended it after the step or validation under way,
// weights and metrics written; a second signal ends the process at once. Error if the loss or the
// gradient stops being finite and train.non_finite says so, with the weights written. IoError, with
// the weights written, if anything else could not be.
int train(const Config& config, RunFolder::Existing existing);

}  // namespace fsdptrain::tools
