#pragma once

#include <csignal>
#include <vector>

#include "runtime/base/descriptor.h"

namespace fsdptrain::tools {

// Signals to the launcher, for its lifetime, as something that can be read. A signal that the
// process was started to ignore stays ignored.
class SignalIntake {
 public:
  // IoError.
  SignalIntake();
  SignalIntake(const SignalIntake&) = delete;
  SignalIntake& operator=(const SignalIntake&) = delete;
  ~SignalIntake();

  int descriptor() const { return arrived_.number(); }
  // Those that have arrived since the last call, in the order of their numbers. SIGCHLD is none of
  // them: it makes that the descriptor can be read.
  std::vector<int> take() const;

 private:
  sigset_t before_{};
  Descriptor arrived_;
};

}  // namespace fsdptrain::tools
