#include "tools/launch/keeper.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/parse_number.h"
#include "tools/exit_code.h"
#include "tools/launch/processes.h"
#include "tools/launch/spawn.h"

namespace fsdptrain::tools {
namespace {

// Orders are numbers: a group to be added, the same below zero to be removed, or this.
constexpr pid_t kAllIsDone = 0;
constexpr int kEndMilliseconds = 1000;
// What is killed may have started something just before.
constexpr int kEmptyLooks = 3;
constexpr int kMostLooks = 500;
constexpr auto kBetweenLooks = std::chrono::milliseconds(10);

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

// What is left of a job whose launcher, `launcher`, is gone: orphans come to this process's new
// parent, as this process does.
void end_all(const std::set<pid_t>& groups, pid_t launcher, const std::string& variable) {
  for (const pid_t group : groups) {
    ::kill(-group, SIGKILL);
  }
  const auto is_of_job = [&](const RunningProcess& process) {
    const bool is_orphan = process.parent == launcher || process.parent == ::getppid();
    return is_orphan && has_variable(process.id, variable);
  };
  int num_empty = 0;
  for (int i = 0; i < kMostLooks && num_empty < kEmptyLooks; ++i) {
    try {
      const std::vector<pid_t> left = with_descendants(running_processes(), is_of_job);
      for (const pid_t process : left) {
        ::kill(process, SIGKILL);
      }
      num_empty = left.empty() ? num_empty + 1 : 0;
    } catch (const IoError&) {
      // The machine may be out of descriptors for a while.
      num_empty = 0;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

Keeper::Keeper(std::string variable) : variable_(std::move(variable)) {
  start();
}

void Keeper::start() {
  Pipe pipe = make_pipe();
  const int orders = pipe.read.number();
  id_ = start_self({"fsdptrain", std::string(kKeeper), std::to_string(orders), variable_},
                   own_environment(), {{orders, orders}});
  orders_ = std::move(pipe.write);
}

Keeper::~Keeper() {
  if (id_ == 0) {
    return;
  }
  send(kAllIsDone);
  // It may be stopped; before the end of its orders, which it would take for the launcher's.
  ::kill(id_, SIGKILL);
  const Descriptor end(static_cast<int>(::syscall(SYS_pidfd_open, id_, 0)));
  pollfd ended{.fd = end.number(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, kEndMilliseconds) > 0) {
    ::waitpid(id_, nullptr, WNOHANG);
  }
}

void Keeper::start_again() {
  id_ = 0;
  start();
  for (const pid_t group : groups_) {
    send(group);
  }
}

void Keeper::add(pid_t group) {
  groups_.insert(group);
  send(group);
}

void Keeper::remove(pid_t group) {
  groups_.erase(group);
  send(-group);
}

void Keeper::send(pid_t order) {
  // It may have been killed: another hears of all groups.
  [[maybe_unused]] const ssize_t ignored = ::write(orders_.number(), &order, sizeof order);
}

int run_keeper(const std::vector<std::string>& arguments) {
  const int orders = arguments.size() == 2 ? parse_number(arguments[0]).value_or(-1) : -1;
  check<ConfigError>(
      orders > STDERR_FILENO,
      "keeper: a descriptor and a variable are expected; only the launcher calls this");
  const pid_t launcher = ::getppid();
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
  end_all(groups, launcher, arguments[1]);
  return static_cast<int>(ExitCode::Done);
}

}  // namespace fsdptrain::tools
