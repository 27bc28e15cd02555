#pragma once

#include <optional>
#include <vector>

#include "runtime/base/rank_context.h"
#include "runtime/data/loader.h"
#include "tools/bench/step_model.h"
#include "tools/config/config.h"

namespace fsdptrain::tools {

// The step of several ranks by one, in this process, which has the processors and the threads of
// all of them, in a rank context of its own, and computes their tokens as one micro-batch.
class OneProcessStep {
 public:
  OneProcessStep(const Config& config, int num_ranks, int threads, std::vector<int> cores);
  OneProcessStep(const OneProcessStep&) = delete;
  OneProcessStep& operator=(const OneProcessStep&) = delete;
  ~OneProcessStep();

  // The seconds of one step. Meanwhile no other context is bound to this thread.
  double run();
  double loss() const { return model_->loss(); }

 private:
  std::vector<int> cores_;
  data::Batch batch_;
  std::optional<RankContext> context_;
  std::optional<StepModel> model_;
};

// Random tokens of one rank: train.micro_batch rows of train.seq_len, others for another rank.
data::Batch rank_batch(const Config& config, int rank);

}  // namespace fsdptrain::tools
