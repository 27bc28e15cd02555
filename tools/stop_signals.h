#pragma once

#include <atomic>
#include <csignal>
#include <thread>

#include "runtime/base/error.h"

namespace fsdptrain::tools {

// Long work ended because the user or the system asked for it.
class StoppedError : public Error {
 public:
  explicit StoppedError(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

// Holds SIGINT and SIGTERM back for its lifetime, so that work stops where it asks and leaves
// nothing half done. A second signal ends the process at once, with the exit code of that signal,
// whatever it is doing. Threads started meanwhile hold the signals back too. A signal that the
// process ignored before stays ignored.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // The signal that arrived, or 0; the same from then on.
  int pending() const { return first_; }
  // StoppedError if one arrived.
  void check_stop() const;

 private:
  // Notes the next signal that has arrived, or ends the process for a second one; false where there
  // is none.
  bool take_one();
  // Waits for signals until `wake_` can be read.
  void watch();

  sigset_t held_;
  sigset_t before_;
  std::atomic<int> first_ = 0;
  // Descriptors: signals that arrived, and the end of watch().
  int arrived_ = -1;
  int wake_ = -1;
  std::thread watcher_;
};

}  // namespace fsdptrain::tools
