// One rank for tests/launch: joins its job, meets the others in a few collectives, and ends.
//   worker WHEN HOW RANKS [SECONDS]
// Those RANKS (as in 0,2) end in this way at this time; SECONDS is the deadline of collectives.
//   WHEN  start, before, inside, after (an all_reduce of tag group 8), exit, never
//   HOW   kill, stop, exit (1), throw, segv, leave (0, without a farewell), saved (75), sleep
// Exit code 0, or 1 with the error on standard error.

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "comm/error.h"
#include "comm/init/init.h"

namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;

class Ending {
 public:
  Ending(const std::string& when, const std::string& how, const std::string& ranks)
      : when_(when), how_(how) {
    const char* const rank = std::getenv("RANK");
    is_mine_ = ("," + ranks + ",").find("," + std::string(rank == nullptr ? "0" : rank) + ",") !=
               std::string::npos;
  }

  // Ends the process, if it is time.
  void at(const std::string& when) const {
    if (!is_mine_ || when != when_) {
      return;
    }
    std::puts(("ends at " + when).c_str());
    std::fflush(stdout);
    // The others are where they wait for this one by then, as far as that matters.
    std::this_thread::sleep_for(200ms);
    if (how_ == "throw") {
      throw DataError("no more tokens");
    }
    if (how_ == "exit" || how_ == "leave" || how_ == "saved") {
      ::_exit(how_ == "exit" ? 1 : how_ == "leave" ? 0 : 75);
    }
    if (how_ == "sleep") {
      std::this_thread::sleep_for(1h);
    }
    std::raise(how_ == "kill" ? SIGKILL : how_ == "stop" ? SIGSTOP : SIGSEGV);
  }

 private:
  std::string when_;
  std::string how_;
  bool is_mine_ = false;
};

void work(Job& job, const Ending& ending) {
  World& world = job.world();
  const Tensor tensor = Tensor::full({1000}, 1);
  world.group().issue(barrier()).wait();
  ending.at("before");
  Work sum = world.group().issue(all_reduce(tensor, {}, {.group = 8}));
  ending.at("inside");
  sum.wait();
  ending.at("after");
  world.group().issue(barrier()).wait();
  check<CommError>(tensor.values<float>()[0] == static_cast<float>(world.size()), "a wrong sum: {}",
                   tensor.values<float>()[0]);
}

void run(const Ending& ending, int seconds) {
  ending.at("start");
  JobOptions options{.threads = 1};
  options.world.timeout = std::chrono::seconds(seconds);
  options.join_timeout = std::chrono::seconds(seconds + 1);
  Job job(read_environment(environment_variable), options);
  try {
    work(job, ending);
  } catch (const std::exception& error) {
    job.fail(error.what());
    throw;
  }
  job.close();
  ending.at("exit");
}

}  // namespace
}  // namespace fsdptrain::comm

int main(int argc, char** argv) {
  // A segmentation fault is no reason to write a core.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (argc != 4 && argc != 5) {
    return 2;
  }
  try {
    fsdptrain::comm::run({argv[1], argv[2], argv[3]}, argc == 5 ? std::atoi(argv[4]) : 60);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
