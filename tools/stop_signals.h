#pragma once

#include <csignal>

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
// nothing half done. Threads started meanwhile hold them back too. A signal that the process
// ignored before stays ignored.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // The signal that arrived, or 0.
  int pending();
  // StoppedError if one arrived.
  void check_stop();

 private:
  sigset_t held_;
  sigset_t before_;
};

}  // namespace fsdptrain::tools
