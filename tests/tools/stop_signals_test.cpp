#include "tools/stop_signals.h"

#include <csignal>
#include <ctime>

#include <doctest/doctest.h>

namespace fsdptrain::tools {
namespace {

TEST_SUITE_BEGIN("tools/stop_signals");

// A signal that has arrived at this thread and is held back; taken away at the end if nobody took
// it.
class HeldSignal {
 public:
  explicit HeldSignal(int signal) : held_{}, before_{} {
    sigemptyset(&held_);
    sigaddset(&held_, signal);
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
    ::raise(signal);
  }
  HeldSignal(const HeldSignal&) = delete;
  HeldSignal& operator=(const HeldSignal&) = delete;
  ~HeldSignal() {
    const timespec at_once{};
    sigtimedwait(&held_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t held_;
  sigset_t before_;
};

class Ignored {
 public:
  explicit Ignored(int signal) : signal_(signal), before_(std::signal(signal, SIG_IGN)) {}
  Ignored(const Ignored&) = delete;
  Ignored& operator=(const Ignored&) = delete;
  ~Ignored() { std::signal(signal_, before_); }

 private:
  int signal_;
  void (*before_)(int);
};

bool is_held_back(int signal) {
  sigset_t held{};
  pthread_sigmask(SIG_BLOCK, nullptr, &held);
  return sigismember(&held, signal) == 1;
}

TEST_CASE("both signals are held back for the lifetime and no longer") {
  REQUIRE_FALSE(is_held_back(SIGINT));
  REQUIRE_FALSE(is_held_back(SIGTERM));
  {
    const StopSignals signals;
    CHECK(is_held_back(SIGINT));
    CHECK(is_held_back(SIGTERM));
    CHECK(signals.pending() == 0);
    CHECK_NOTHROW(signals.check_stop());
  }
  CHECK_FALSE(is_held_back(SIGINT));
  CHECK_FALSE(is_held_back(SIGTERM));
}

TEST_CASE("a signal that was pending before counts from the start, and stops work by its name") {
  for (const int number : {SIGINT, SIGTERM}) {
    CAPTURE(number);
    const HeldSignal held(number);
    const StopSignals signals;
    CHECK(signals.pending() == number);
    CHECK_THROWS_WITH_AS(signals.check_stop(),
                         number == SIGINT ? "stopped by SIGINT" : "stopped by SIGTERM",
                         StoppedError);
    try {
      signals.check_stop();
    } catch (const StoppedError& error) {
      CHECK(error.signal() == number);
    }
    // The same from then on.
    CHECK(signals.pending() == number);
  }
}

TEST_CASE("a signal that the process ignores stays ignored, the other one counts") {
  const Ignored ignored(SIGINT);
  {
    const StopSignals signals;
    CHECK_FALSE(is_held_back(SIGINT));
    CHECK(is_held_back(SIGTERM));
  }
  // The system keeps even an ignored one while it is held back.
  const HeldSignal interrupt(SIGINT);
  {
    const StopSignals signals;
    CHECK(signals.pending() == 0);
    CHECK_NOTHROW(signals.check_stop());
  }
  const HeldSignal terminate(SIGTERM);
  const StopSignals signals;
  CHECK(signals.pending() == SIGTERM);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
