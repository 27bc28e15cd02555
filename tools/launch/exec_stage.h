#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

// The first moments of a worker: this program itself, started again as `fsdptrain exec-stage`,
// which prepares the process and becomes the worker's program. So nothing runs between a fork and
// an exec of the launcher, which has threads.
namespace fsdptrain::tools {

inline constexpr std::string_view kExecStage = "exec-stage";

struct ExecStage {
  // The launcher: with it, the worker ends.
  pid_t parent = 0;
  // A pipe for an ExecFailure; it closes without one where the program runs.
  int failure = -1;
  // Processors that the worker may use; empty: those of the launcher.
  std::vector<int> cores = {};
  // A path, or a name that is looked up in PATH, then the arguments.
  std::vector<std::string> program = {};
};

// As it is written into the pipe.
struct ExecFailure {
  // An errno.
  int error = 0;
  // Whether the program could not be started; else its process could not be prepared.
  bool is_of_program = true;
};

// The command line that run_exec_stage() reads.
std::vector<std::string> exec_stage_arguments(const ExecStage& stage);

// Becomes the program; returns the exit code if it cannot. ConfigError for a command line that is
// not of exec_stage_arguments().
int run_exec_stage(const std::vector<std::string>& arguments);

// For people: what went wrong and what helps.
std::string explain(const ExecFailure& failure, const std::string& program);

}  // namespace fsdptrain::tools
