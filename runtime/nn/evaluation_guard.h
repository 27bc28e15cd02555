#pragma once

#include "runtime/nn/module.h"

namespace fsdptrain::nn {

// Evaluation mode for the lifetime of the guard; then, also after an exception, what was before.
class EvaluationGuard {
 public:
  explicit EvaluationGuard(Module& module) : module_(module), was_training_(module.training()) {
    module_.set_training(false);
  }
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;
  ~EvaluationGuard() { module_.set_training(was_training_); }

 private:
  Module& module_;
  bool was_training_;
};

}  // namespace fsdptrain::nn
