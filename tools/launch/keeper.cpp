#include "tools/launch/keeper.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/parse_number.h"
#include "tools/exit_code.h"
#include "tools/launch/spawn.h"

namespace fsdptrain::tools {
namespace {

// Orders are numbers: a group to be added, the same below zero to be removed, or this.
constexpr pid_t kAllIsDone = 0;

// Standard streams lead nowhere: whoever reads the launcher's sees their end with the launcher.
void leave_descriptors(int but) {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    ::dup2(STDIN_FILENO, stream);
  }
  if (but > STDERR_FILENO + 1) {
    ::close_range(STDERR_FILENO + 1, static_cast<unsigned>(but) - 1, 0);
  }
  ::close_range(static_cast<unsigned>(but) + 1, ~0U, 0);
}

}  // namespace

Keeper::Keeper() {
  Pipe pipe = make_pipe();
  SpawnActions actions;
  actions.keep(pipe.read.number());
  id_ = actions.run({"fsdptrain", std::string(kKeeper), std::to_string(pipe.read.number())},
                    own_environment());
  orders_ = std::move(pipe.write);
}

Keeper::~Keeper() {
  send(kAllIsDone);
  orders_.close();
  while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Keeper::add(pid_t group) {
  send(group);
}

void Keeper::remove(pid_t group) {
  send(-group);
}

void Keeper::send(pid_t order) {
  // It may have been killed; then the ranks end with the launcher, and only they.
  [[maybe_unused]] const ssize_t ignored = ::write(orders_.number(), &order, sizeof order);
}

int run_keeper(const std::vector<std::string>& arguments) {
  const int orders = arguments.size() == 1 ? parse_number(arguments[0]).value_or(-1) : -1;
  check<ConfigError>(orders > STDERR_FILENO,
                     "keeper: one descriptor is expected; only the launcher calls this");
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  leave_descriptors(orders);
  std::set<pid_t> groups;
  pid_t order = 0;
  while (::read(orders, &order, sizeof order) == ssize_t{sizeof order}) {
    if (order == kAllIsDone) {
      return static_cast<int>(ExitCode::Done);
    }
    if (order > 0) {
      groups.insert(order);
    } else {
      groups.erase(-order);
    }
  }
  // The launcher is gone without a word.
  for (const pid_t group : groups) {
    ::kill(-group, SIGKILL);
  }
  return static_cast<int>(ExitCode::Done);
}

}  // namespace fsdptrain::tools
