#include "tools/launch/signal_intake.h"

#include <array>
#include <cerrno>
#include <pthread.h>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>

#include "runtime/base/error.h"

namespace fsdptrain::tools {

SignalIntake::SignalIntake() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&taken, signal);
    }
  }
  arrived_ = Descriptor(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  check<IoError>(arrived_.is_open(),
                 "launch: signals cannot be watched: {}; raise the limit of open files (ulimit -n)",
                 std::generic_category().message(errno));
  pthread_sigmask(SIG_BLOCK, &taken, &before_);
}

SignalIntake::~SignalIntake() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> SignalIntake::take() const {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(arrived_.number(), &info, sizeof info) == sizeof info) {
    if (const int signal = static_cast<int>(info.ssi_signo); signal != SIGCHLD) {
      signals.push_back(signal);
    }
  }
  return signals;
}

}  // namespace fsdptrain::tools
