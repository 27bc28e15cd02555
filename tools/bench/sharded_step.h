#pragma once

#include <cstdint>

#include "comm/process_group.h"
#include "runtime/data/loader.h"
#include "tools/config/config.h"
#include "tools/train/training_rank.h"

namespace fsdptrain::tools {

// A configured model in training on one rank of a process group, meta and phantoms included: steps
// of one micro-batch of each rank, by the optimizer at its peak learning rate. Reads the sections
// model, optimizer and shard, run.seed and, of train, compute_dtype, recompute and grad_clip.
class ShardedStep {
 public:
  // The group outlives it.
  ShardedStep(const Config& config, comm::ProcessGroup& ranks);

  // The seconds of one step: forward, backward and update. Collective; all ranks bring as many
  // targets.
  double run(const data::Batch& batch);
  // Of the last step, over all ranks; 0 on meta. Error where it is no finite number.
  double loss() const { return loss_; }

  std::int64_t num_parameters() { return rank_.sharded().num_parameters(); }
  // In the group of the loss' tag.
  std::uint32_t loss_group() const { return loss_group_; }

 private:
  comm::ProcessGroup& ranks_;
  TrainingRank rank_;
  // Behind those of the model.
  std::uint32_t loss_group_;
  std::uint64_t steps_ = 0;
  double loss_ = 0;
};

}  // namespace fsdptrain::tools
