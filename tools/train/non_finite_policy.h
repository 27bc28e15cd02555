#pragma once

#include <cstdint>
#include <functional>

#include "comm/world.h"
#include "shard/sharded_model.h"
#include "tools/config/config.h"
#include "tools/run/reporter.h"
#include "tools/train/train_step.h"

namespace fsdptrain::tools {

// A step whose loss or gradient norm is not finite, before its update.
struct NonFiniteStep {
  TrainStep& train_step;
  shard::ShardedModel& model;
  // Of this rank.
  TrainStep::Share share;
  comm::World& world;
  // From 0.
  std::uint64_t number = 0;
  double loss = 0;
  double grad_norm = 0;
};

// What a run does about such steps: train.non_finite and train.non_finite_limit.
class NonFinitePolicy {
 public:
  explicit NonFinitePolicy(const TrainConfig& config)
      : skips_(config.non_finite == "skip"), limit_(config.non_finite_limit) {}

  // Updates skipped in a row, which the next attempt of a run goes on with.
  std::int64_t skipped_in_a_row() const { return skipped_in_a_row_; }
  void resume(std::int64_t skipped_in_a_row) { skipped_in_a_row_ = skipped_in_a_row; }

  // A step that was finite, and has its update.
  void passed() { skipped_in_a_row_ = 0; }

  // Locates the value on all ranks, which find the same, writes an event line to metrics.jsonl, and
  // returns if the run goes on without the step's update. Error if it is to end, or if the weights
  // themselves are not finite; before it, and only for weights that are finite, `save_weights`
  // runs: they are those from before the step.
  void react(const NonFiniteStep& step, Reporter& reporter,
             const std::function<void()>& save_weights);

 private:
  bool skips_;
  std::int64_t limit_;
  std::int64_t skipped_in_a_row_ = 0;
};

}  // namespace fsdptrain::tools
