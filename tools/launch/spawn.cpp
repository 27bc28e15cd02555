#include "tools/launch/spawn.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "runtime/base/error.h"
#include "tools/launch/exec_stage.h"

namespace fsdptrain::tools {
namespace {

// With what helps, if it is known.
std::string reason_of(int error) {
  const std::string reason = std::generic_category().message(error);
  switch (error) {
    case EMFILE:
      return reason + "; raise the limit of open files (ulimit -n)";
    case ENFILE:
      return reason + "; raise that of the whole machine (sysctl fs.file-max)";
    case EAGAIN:
      return reason + "; raise the limit of processes (ulimit -u), or start fewer ranks";
    default:
      return reason;
  }
}

}  // namespace

SpawnActions::SpawnActions() {
  posix_spawn_file_actions_init(&files_);
  posix_spawnattr_init(&attributes_);
  posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes_, 0);
  posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
}

SpawnActions::~SpawnActions() {
  posix_spawn_file_actions_destroy(&files_);
  posix_spawnattr_destroy(&attributes_);
}

void SpawnActions::put(int descriptor, int number) {
  // One that is put into its own place stays open, too.
  posix_spawn_file_actions_adddup2(&files_, descriptor, number);
}

pid_t SpawnActions::run(std::vector<std::string> arguments, const Environment& environment) const {
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) {
    entries.push_back(fmt::format("{}={}", name, value));
  }
  std::vector<char*> envp;
  for (std::string& entry : entries) {
    envp.push_back(entry.data());
  }
  envp.push_back(nullptr);
  pid_t id = 0;
  const int error =
      ::posix_spawn(&id, "/proc/self/exe", &files_, &attributes_, argv.data(), envp.data());
  check<IoError>(error == 0, "launch: the system starts no more processes: {}", reason_of(error));
  return id;
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  const bool is_made = ::pipe2(ends.data(), O_CLOEXEC) == 0;
  check<IoError>(is_made, "launch: the system gives no pipe: {}", reason_of(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

StartedProcess spawn(const SpawnRequest& request) {
  Pipe failure = make_pipe();
  SpawnActions actions;
  actions.put(request.output, STDOUT_FILENO);
  actions.put(request.error, STDERR_FILENO);
  for (const int descriptor : request.inherited) {
    actions.keep(descriptor);
  }
  actions.keep(failure.write.number());
  const ExecStage stage{.parent = ::getpid(),
                        .failure = failure.write.number(),
                        .cores = request.cores,
                        .program = request.program};
  StartedProcess started{.failure = std::move(failure.read)};
  started.id = actions.run(exec_stage_arguments(stage), request.environment);
  started.end = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, started.id, 0)));
  if (!started.end.is_open()) {
    const int reason = errno;
    ::kill(started.id, SIGKILL);
    ::waitpid(started.id, nullptr, 0);
    fail<IoError>("launch: a process cannot be watched: {}", reason_of(reason));
  }
  return started;
}

}  // namespace fsdptrain::tools
