#pragma once

#include <spawn.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/base/descriptor.h"
#include "tools/launch/worker_environment.h"

namespace fsdptrain::tools {

// What posix_spawn() does on its way into this program, started again: in a new process group, with
// nothing on standard input. Descriptors that are closed on exec stay so unless they are put.
class SpawnActions {
 public:
  SpawnActions();
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions();

  void put(int descriptor, int number);
  // Under its own number.
  void keep(int descriptor) { put(descriptor, descriptor); }
  // `arguments` begin with the program's name. IoError where the system has no more processes.
  pid_t run(std::vector<std::string> arguments, const Environment& environment) const;

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

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

// Both ends are closed in programs that this process starts. IoError.
struct Pipe {
  Descriptor read;
  Descriptor write;
};
Pipe make_pipe();

}  // namespace fsdptrain::tools
