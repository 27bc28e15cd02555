#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/lone_world.h"
#include "models/common/decoder.h"
#include "runtime/data/loader.h"
#include "runtime/optim/optimizer.h"
#include "shard/sharded_model.h"
#include "tools/config.h"
#include "tools/train/train_step.h"

namespace fsdptrain::tools {

// A configured model in training on random tokens that lie in memory: steps of one micro-batch,
// by the optimizer at its peak learning rate. Reads the sections model and optimizer, run.seed and,
// of train, micro_batch, seq_len, compute_dtype, recompute and grad_clip.
class StepModel {
 public:
  explicit StepModel(const Config& config);

  // The seconds of one step: forward, backward and update.
  double run() { return run(batch_); }
  double run(const data::Batch& batch);

  std::int64_t num_parameters() const { return sharded_->num_parameters(); }

 private:
  comm::LoneWorld alone_;
  std::unique_ptr<models::Decoder> model_;
  std::unique_ptr<shard::ShardedModel> sharded_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  TrainStep step_;
  data::Batch batch_;
  double lr_;
  std::uint64_t steps_ = 0;
};

// `rows` rows of random tokens, others for another `first_sample`.
data::Batch random_batch(std::int64_t rows, std::int64_t seq_len, std::int64_t vocab_size,
                         std::uint64_t first_sample = 0);

}  // namespace fsdptrain::tools
