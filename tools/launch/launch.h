#pragma once

#include "tools/launch/options.h"

namespace fsdptrain::tools {

// Runs the job to its end and returns the exit code of the launcher (exit_code.h). ConfigError for
// options that do not fit, or a program that cannot be started; PathError for a folder of logs that
// cannot be written; then no rank has begun to work. IoError where the system refuses processes or
// descriptors. Call it from the main thread: the ranks end with it.
int launch(const LaunchOptions& options);

}  // namespace fsdptrain::tools
