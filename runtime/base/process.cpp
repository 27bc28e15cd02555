#include "runtime/base/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "runtime/base/error.h"

namespace fsdptrain {
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
      return reason + "; raise the limit of processes (ulimit -u)";
    default:
      return reason;
  }
}

// What posix_spawnp() does on its way into the program.
class SpawnActions {
 public:
  explicit SpawnActions(const ProcessOptions& options) {
    posix_spawn_file_actions_init(&files_);
    posix_spawnattr_init(&attributes_);
    for (const auto& [there, here] : options.descriptors) {
      // One that is put into its own place stays open, too.
      posix_spawn_file_actions_adddup2(&files_, here, there);
    }
    if (options.has_own_group) {
      posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
      posix_spawnattr_setpgroup(&attributes_, 0);
    }
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }

  const posix_spawn_file_actions_t* files() const { return &files_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) {
    all.push_back(text.data());
  }
  all.push_back(nullptr);
  return all;
}

// Numbers are given one after the other.
void check_descriptors(const std::map<int, int>& descriptors) {
  for (const auto& [there, here] : descriptors) {
    const auto place = descriptors.find(here);
    const bool is_taken =
        place != descriptors.end() && place->first < there && place->second != here;
    check(!is_taken, "process: descriptor {} is put at {} when another has its number", here,
          there);
  }
}

}  // namespace

Environment own_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  const bool is_made = ::pipe2(ends.data(), O_CLOEXEC) == 0;
  check<IoError>(is_made, "the system gives no pipe: {}", reason_of(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

pid_t start_process(const ProcessOptions& options) {
  check(!options.arguments.empty(), "process: the name of {} is missing", options.program);
  check_descriptors(options.descriptors);
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> variables;
  for (const auto& [name, value] : options.environment.value_or(Environment{})) {
    variables.push_back(fmt::format("{}={}", name, value));
  }
  const SpawnActions actions(options);
  pid_t id = 0;
  const int error = ::posix_spawnp(&id, options.program.c_str(), actions.files(),
                                   actions.attributes(), pointers(arguments).data(),
                                   options.environment ? pointers(variables).data() : environ);
  check<IoError>(error == 0, "a process of {} cannot be started: {}", arguments.front(),
                 reason_of(error));
  return id;
}

std::string to_string(const ProcessEnd& end) {
  if (!end.is_signal) {
    return fmt::format("ended with exit code {}", end.value);
  }
  const char* const name = ::sigabbrev_np(end.value);
  return fmt::format("was ended by signal {}{}", end.value,
                     name != nullptr ? fmt::format(" (SIG{})", name) : "");
}

std::optional<ProcessEnd> take_end(pid_t child) {
  siginfo_t info{};
  const bool has_ended =
      ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0;
  return has_ended ? std::optional(ProcessEnd{info.si_status, info.si_code != CLD_EXITED})
                   : std::nullopt;
}

Process::~Process() {
  if (id_ != 0) {
    send(SIGKILL);
    while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Process::send(int signal) const {
  if (id_ != 0) {
    ::kill(id_, signal);
  }
}

ProcessEnd Process::wait() {
  while (!poll()) {
    siginfo_t info{};
    const bool has_ended =
        ::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOWAIT) == 0 || errno == EINTR;
    check<IoError>(has_ended, "waiting for process {} failed: {}", id_,
                   std::generic_category().message(errno));
  }
  return *end_;
}

std::optional<ProcessEnd> Process::poll() {
  if (id_ != 0) {
    end_ = take_end(id_);
    id_ = end_ ? 0 : id_;
  }
  return end_;
}

}  // namespace fsdptrain
