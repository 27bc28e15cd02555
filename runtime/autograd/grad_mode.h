#pragma once

#include "runtime/base/rank_context.h"

namespace fsdptrain::autograd {

inline bool grad_enabled() {
  return current_context().autograd.grad_enabled;
}

// Nothing is recorded on this rank while the guard lives.
class NoGradGuard {
 public:
  NoGradGuard() : state_(current_context().autograd), previous_(state_.grad_enabled) {
    state_.grad_enabled = false;
  }
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;
  ~NoGradGuard() { state_.grad_enabled = previous_; }

 private:
  AutogradState& state_;
  bool previous_;
};

}  // namespace fsdptrain::autograd
