#pragma once

#include <chrono>
#include <string>

namespace fsdptrain::comm {

using Nanoseconds = std::chrono::nanoseconds;

// Time that only moves forward, counted from an arbitrary start: deadlines are meant to survive a
// change of the date. Tests and simulations bring their own.
class Clock {
 public:
  virtual ~Clock() = default;
  // Safe to call from any thread.
  virtual Nanoseconds now() const = 0;

 protected:
  Clock() = default;
  Clock(const Clock&) = default;
  Clock& operator=(const Clock&) = default;
};

// CLOCK_MONOTONIC, the same for all processes of a host.
const Clock& monotonic_clock();

// "2.5 s"
std::string to_string(Nanoseconds time);

// The moment after which nobody waits any longer.
class Deadline {
 public:
  // `timeout` from now on.
  Deadline(const Clock& clock, Nanoseconds timeout)
      : clock_(&clock), timeout_(timeout), end_(end_of(clock.now(), timeout)) {}

  bool passed() const { return clock_->now() >= end_; }
  // Never negative.
  Nanoseconds left() const {
    const Nanoseconds left = end_ - clock_->now();
    return left.count() > 0 ? left : Nanoseconds{0};
  }
  // What was asked for, to be named in errors.
  Nanoseconds timeout() const { return timeout_; }

 private:
  // Nanoseconds::max() is never.
  static Nanoseconds end_of(Nanoseconds now, Nanoseconds timeout) {
    return timeout > Nanoseconds::max() - now ? Nanoseconds::max() : now + timeout;
  }

  const Clock* clock_;
  Nanoseconds timeout_;
  Nanoseconds end_;
};

}  // namespace fsdptrain::comm
