#pragma once

#include "tools/config.h"

namespace fsdptrain::tools {

// Trains by the configuration: console lines, metrics, evaluation, weights at the end. Returns
// the exit code: Done, or Signalled + n when SIGINT or SIGTERM ended it after the step or
// validation under way, weights and metrics written. Error if the loss or the gradient stops being
// finite and train.non_finite says so, with the weights written.
int train(const Config& config);

}  // namespace fsdptrain::tools
