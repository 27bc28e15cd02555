#include "tools/stop_signals.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>

#include "comm/signals.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {

StoppedError::StoppedError(int signal)
    : Error(fmt::format("stopped by {}", signal == SIGINT ? "SIGINT" : "SIGTERM")),
      signal_(signal) {}

StopSignals::StopSignals() : held_{}, before_{} {
  sigemptyset(&held_);
  for (const int signal : std::array{SIGINT, SIGTERM}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&held_, signal);
    }
  }
  arrived_ = ::signalfd(-1, &held_, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  if (arrived_ < 0 || wake_ < 0) {
    const std::string reason = std::generic_category().message(errno);
    ::close(arrived_);
    ::close(wake_);
    fail<IoError>("signals cannot be watched: {}; raise the limit of open files (ulimit -n)",
                  reason);
  }
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
  // One that was held back already counts from the start, however soon the work asks.
  take_one();
  // Signals of others are none of its business: it would take them from who waits for them.
  watcher_ = comm::thread_without_signals([this] { watch(); });
}

StopSignals::~StopSignals() {
  const std::uint64_t one = 1;
  // An eventfd takes a 1 whenever its count is 0.
  while (::write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
  }
  watcher_.join();
  ::close(arrived_);
  ::close(wake_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool StopSignals::take_one() {
  signalfd_siginfo info{};
  if (::read(arrived_, &info, sizeof info) != sizeof info) {
    return false;
  }
  const int signal = static_cast<int>(info.ssi_signo);
  int none = 0;
  if (!first_.compare_exchange_strong(none, signal)) {
    // No destructors and no buffers: whatever holds the process up may hold those up too.
    ::_exit(static_cast<int>(ExitCode::Signalled) + signal);
  }
  return true;
}

void StopSignals::watch() {
  std::array<pollfd, 2> sources{{{arrived_, POLLIN, 0}, {wake_, POLLIN, 0}}};
  for (;;) {
    if (::poll(sources.data(), sources.size(), -1) < 0) {
      continue;  // EINTR: a debugger
    }
    if (!take_one() && sources[1].revents != 0) {
      return;
    }
  }
}

void StopSignals::check_stop() const {
  if (const int signal = pending(); signal != 0) {
    throw StoppedError(signal);
  }
}

}  // namespace fsdptrain::tools
