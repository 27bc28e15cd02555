#include "tools/launch/exec_stage.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/quoted.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {
namespace {

// Nobody reads it: the launcher has the failure from the pipe, or is gone.
constexpr int kNoProgram = 127;

int number_in(std::string_view text) {
  const std::optional<int> number = parse_number(text);
  check<ConfigError>(number.has_value(),
                     "exec-stage: a number is expected, got {}; only the launcher calls this",
                     in_quotes(text));
  return *number;
}

ExecStage parse(const std::vector<std::string>& arguments) {
  check<ConfigError>(arguments.size() >= 4,
                     "exec-stage: at least 4 arguments are expected, got {}; only the launcher "
                     "calls this",
                     arguments.size());
  ExecStage stage{.parent = number_in(arguments[0]), .failure = number_in(arguments[1])};
  std::string_view cores = arguments[2];
  while (cores != "-") {
    const std::size_t end = cores.find(',');
    stage.cores.push_back(number_in(cores.substr(0, end)));
    cores = end == std::string_view::npos ? "-" : cores.substr(end + 1);
  }
  stage.program.assign(arguments.begin() + 3, arguments.end());
  return stage;
}

bool bind_cores(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    CPU_SET(static_cast<std::size_t>(core), &set);
  }
  return cores.empty() || ::sched_setaffinity(0, sizeof set, &set) == 0;
}

// All as a program expects them at its begin, but signals that the launcher was started to ignore.
void reset_signals() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    const bool stays = signal == SIGHUP || signal == SIGINT || signal == SIGQUIT ||
                       signal == SIGTERM || signal == SIGTSTP;
    if (!stays && ::sigaction(signal, nullptr, &action) == 0) {
      action.sa_handler = SIG_DFL;
      ::sigaction(signal, &action, nullptr);
    }
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Returns with an errno where the program is at none of the places that PATH names.
int execute(const std::vector<std::string>& program) {
  std::vector<char*> argv;
  for (const std::string& word : program) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): exec writes nothing.
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  if (program.front().find('/') != std::string::npos) {
    ::execv(program.front().c_str(), argv.data());
    return errno;
  }
  const char* const path = std::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  int error = ENOENT;
  while (true) {
    const std::size_t end = folders.find(':');
    const std::string folder(folders.substr(0, end));
    const std::string place = fmt::format("{}/{}", folder.empty() ? "." : folder, program.front());
    ::execv(place.c_str(), argv.data());
    // One that may not be executed, or is no program, is said rather than that there is none.
    if (errno != ENOENT && errno != ENOTDIR) {
      error = errno;
      if (error != EACCES) {
        return error;
      }
    }
    if (end == std::string_view::npos) {
      return error;
    }
    folders.remove_prefix(end + 1);
  }
}

}  // namespace

std::vector<std::string> exec_stage_arguments(const ExecStage& stage) {
  std::vector<std::string> arguments{
      "fsdptrain", std::string(kExecStage), std::to_string(stage.parent),
      std::to_string(stage.failure),
      stage.cores.empty() ? "-" : fmt::format("{}", fmt::join(stage.cores, ","))};
  arguments.insert(arguments.end(), stage.program.begin(), stage.program.end());
  return arguments;
}

int run_exec_stage(const std::vector<std::string>& arguments) {
  const ExecStage stage = parse(arguments);
  ExecFailure failure{.is_of_program = false};
  const auto tell = [&] {
    // The pipe is empty, and takes it at once.
    [[maybe_unused]] const ssize_t ignored = ::write(stage.failure, &failure, sizeof failure);
    return kNoProgram;
  };
  if (::fcntl(stage.failure, F_SETFD, FD_CLOEXEC) != 0 || ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
      !bind_cores(stage.cores)) {
    failure.error = errno;
    return tell();
  }
  // Had the launcher ended before, nothing would tell.
  if (::getppid() != stage.parent) {
    return static_cast<int>(ExitCode::Failed);
  }
  reset_signals();
  failure = {.error = execute(stage.program), .is_of_program = true};
  return tell();
}

std::string explain(const ExecFailure& failure, const std::string& program) {
  const std::string name = in_quotes(program);
  const std::string reason = std::generic_category().message(failure.error);
  const bool has_path = program.find('/') != std::string::npos;
  if (!failure.is_of_program) {
    return fmt::format("a process for {} cannot be prepared: {}", name, reason);
  }
  const bool is_script = program.ends_with(".py") || program.ends_with(".sh");
  const std::string_view interpreter = program.ends_with(".sh") ? "bash" : "python3";
  switch (failure.error) {
    case ENOENT:
    case ENOTDIR:
      return has_path
                 ? fmt::format("{} is not there, or the interpreter of its first line is not", name)
                 : fmt::format(
                       "{} is in no folder of PATH; give its path, as in ./{}, or the "
                       "whole name of an fsdptrain command behind --",
                       name, printable(program));
    case EACCES:
      return fmt::format("{} may not be executed: {}; {}", name, reason,
                         is_script ? fmt::format("put the interpreter in front: {} {}", interpreter,
                                                 printable(program))
                                   : "chmod +x, if it is a program");
    case ENOEXEC:
      return fmt::format("{} is no program of this machine; {}", name,
                         is_script ? fmt::format("put the interpreter in front: {} {}", interpreter,
                                                 printable(program))
                                   : "a script needs a first line such as #!/bin/sh");
    default:
      return fmt::format("{} cannot be started: {}", name, reason);
  }
}

}  // namespace fsdptrain::tools
