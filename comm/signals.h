#pragma once

#include <csignal>
#include <ctime>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/error.h"

namespace fsdptrain::comm {

// Runs `make`; threads that it starts take no signals, which are the program's.
template <class Make>
auto without_signals(Make make) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    ~Restore() { pthread_sigmask(SIG_SETMASK, mask, nullptr); }
    const sigset_t* mask;
  };
  const Restore restore{&before};
  return make();
}

// A thread that takes none. IoError where the system has no more threads.
template <class Work>
std::thread thread_without_signals(Work work) {
  try {
    return without_signals([&work] { return std::thread(std::move(work)); });
  } catch (const std::system_error& error) {
    fail<IoError>("the system starts no more threads: {}; raise the limit of processes (ulimit -u)",
                  error.code().message());
  }
}

// Writing to a connection that the peer has closed is an error here, and no signal that ends the
// program.
class PipeSignalGuard {
 public:
  PipeSignalGuard() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  PipeSignalGuard(const PipeSignalGuard&) = delete;
  PipeSignalGuard& operator=(const PipeSignalGuard&) = delete;
  ~PipeSignalGuard() {
    if (sigismember(&before_, SIGPIPE) == 1) {
      return;
    }
    const timespec at_once{};
    sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace fsdptrain::comm
