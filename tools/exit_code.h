#pragma once

#include <exception>

namespace fsdptrain::tools {

// How fsdptrain ends. Scripts and launchers rely on these values: do not change them.
enum class ExitCode : int {
  Done = 0,
  Failed = 1,   // at run time: disk full, out of memory, a fault of the program
  Refused = 2,  // command line, configuration or input: the user must change something
  // The work is not done, but nothing of it is lost: come again.
  Saved = 75,
  // Stopped by signal n: 128 + n, so 130 for SIGINT and 143 for SIGTERM.
  Signalled = 128,
};

// The exit code of a run that ended with this exception.
int exit_code_of(const std::exception& error);

}  // namespace fsdptrain::tools
