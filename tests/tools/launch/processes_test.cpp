#include "tools/launch/processes.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/process.h"

namespace fsdptrain::tools {
namespace {

bool holds(const std::vector<RunningProcess>& processes, const RunningProcess& wanted) {
  return std::any_of(processes.begin(), processes.end(), [&](const RunningProcess& process) {
    return process.id == wanted.id && process.parent == wanted.parent;
  });
}

TEST_CASE("this process is among those that run, with its parent") {
  CHECK(holds(running_processes(), {.id = getpid(), .parent = getppid()}));
}

TEST_CASE("processes that end while they are looked at are left out") {
  std::atomic<bool> done = false;
  bool all_ran = true;
  std::jthread others([&] {
    for (int i = 0; i < 1000; ++i) {
      all_ran =
          Process({.program = "true", .arguments = {"true"}}).wait() == ProcessEnd{} && all_ran;
    }
    done = true;
  });
  bool always_found = true;
  while (!done) {
    always_found =
        holds(running_processes(), {.id = getpid(), .parent = getppid()}) && always_found;
  }
  others.join();
  CHECK(all_ran);
  CHECK(always_found);
}

TEST_CASE("a process whose first thread has ended runs while another does") {
  const pid_t child = fork();
  if (child == 0) {
    std::thread([] { pause(); }).detach();
    // Of this thread alone, and unwinds nothing.
    syscall(SYS_exit, 0);
  }
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (text.find(") Z ") == std::string::npos && std::chrono::steady_clock::now() < deadline) {
    std::ifstream file(stat);
    std::getline(file, text);
  }
  CHECK(text.find(") Z ") != std::string::npos);
  CHECK(holds(running_processes(), {.id = child, .parent = getpid()}));
  kill(child, SIGKILL);
  siginfo_t end{};
  CHECK(waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(holds(running_processes(), {.id = child, .parent = getpid()}));
  CHECK(waitpid(child, nullptr, 0) == child);
}

// So many descriptors may be opened, and no more.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count) {
    const int next = dup(STDERR_FILENO);
    close(next);
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{static_cast<rlim_t>(next) + count, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_CASE("without descriptors no process counts as ended") {
  for (const rlim_t count : {0, 1}) {
    const FewDescriptors few(count);
    CHECK_THROWS_WITH_AS(running_processes(), doctest::Contains("Too many open files"), IoError);
  }
  {
    const FewDescriptors few(0);
    CHECK_THROWS_AS(has_variable(getpid(), "PATH="), IoError);
  }
  CHECK(holds(running_processes(), {.id = getpid(), .parent = getppid()}));
}

TEST_CASE("descendants are found over any number of parents, and once") {
  const std::vector<RunningProcess> processes = {{2, 1}, {5, 4}, {3, 2}, {4, 3}, {7, 6}, {8, 2}};
  std::vector<pid_t> found =
      with_descendants(processes, [](const RunningProcess& p) { return p.id == 2 || p.id == 4; });
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<pid_t>{2, 3, 4, 5, 8});
}

TEST_CASE("a variable is found by its whole name and value") {
  const std::string path = getenv("PATH");
  CHECK(has_variable(getpid(), "PATH=" + path));
  CHECK_FALSE(has_variable(getpid(), "ATH=" + path));
  CHECK_FALSE(has_variable(getpid(), "PATH=" + path.substr(0, path.size() - 1)));
}

}  // namespace
}  // namespace fsdptrain::tools
