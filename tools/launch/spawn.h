#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/process.h"

namespace fsdptrain::tools {

// This program, started again as one of its hidden commands: in a group of its own, with nothing on
// standard input. `descriptors` as in ProcessOptions. The caller waits for it; IoError.
pid_t start_self(std::vector<std::string> arguments, const Environment& environment,
                 std::map<int, int> descriptors);

struct SpawnRequest {
  // A path, or a name that is looked up in PATH, then the arguments.
  std::vector<std::string> program;
  Environment environment;
  // Those of this process that stay open in the program, under their numbers.
  std::vector<int> inherited;
  int output = -1;
  int error = -1;
  // Processors that it may use; empty: all of this process.
  std::vector<int> cores;
};

// A process that this one started and has not waited for.
struct StartedProcess {
  pid_t id = 0;
  // Can be read when the process has ended.
  Descriptor end = {};
  // Carries an ExecFailure (exec_stage.h), or just ends.
  Descriptor failure = {};
};

// Starts the program through the exec stage. With the thread that calls, it ends. IoError where the
// system has no more processes or descriptors.
StartedProcess spawn(const SpawnRequest& request);

}  // namespace fsdptrain::tools
