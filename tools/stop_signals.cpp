#include "tools/stop_signals.h"

#include <array>
#include <ctime>
#include <fmt/format.h>
#include <pthread.h>

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
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

StopSignals::~StopSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int StopSignals::pending() {
  const timespec no_wait{};
  const int signal = sigtimedwait(&held_, nullptr, &no_wait);
  return signal > 0 ? signal : 0;
}

void StopSignals::check_stop() {
  if (const int signal = pending(); signal != 0) {
    throw StoppedError(signal);
  }
}

}  // namespace fsdptrain::tools
