#include "tools/launch/spawn.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "runtime/base/error.h"
#include "tools/launch/exec_stage.h"

namespace fsdptrain::tools {

pid_t start_self(std::vector<std::string> arguments, const Environment& environment,
                 std::map<int, int> descriptors) {
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  check<IoError>(
      nothing.is_open(),
      "launch: /dev/null cannot be opened: {}; raise the limit of open files (ulimit -n)",
      std::generic_category().message(errno));
  descriptors.emplace(STDIN_FILENO, nothing.number());
  return start_process({.program = "/proc/self/exe",
                        .arguments = std::move(arguments),
                        .environment = environment,
                        .descriptors = std::move(descriptors),
                        .has_own_group = true});
}

StartedProcess spawn(const SpawnRequest& request) {
  Pipe failure = make_pipe();
  std::map<int, int> descriptors{{STDOUT_FILENO, request.output},
                                 {STDERR_FILENO, request.error},
                                 {failure.write.number(), failure.write.number()}};
  for (const int descriptor : request.inherited) {
    descriptors.emplace(descriptor, descriptor);
  }
  const ExecStage stage{.parent = ::getpid(),
                        .failure = failure.write.number(),
                        .cores = request.cores,
                        .program = request.program};
  StartedProcess started{.failure = std::move(failure.read)};
  started.id = start_self(exec_stage_arguments(stage), request.environment, std::move(descriptors));
  started.end = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, started.id, 0)));
  if (!started.end.is_open()) {
    const int reason = errno;
    ::kill(started.id, SIGKILL);
    ::waitpid(started.id, nullptr, 0);
    fail<IoError>(
        "launch: a process cannot be watched: {}; raise the limit of open files (ulimit -n)",
        std::generic_category().message(reason));
  }
  return started;
}

}  // namespace fsdptrain::tools
