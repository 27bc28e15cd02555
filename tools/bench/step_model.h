#pragma once

#include <cstdint>

#include "comm/lone_world.h"
#include "runtime/data/loader.h"
#include "tools/bench/sharded_step.h"
#include "tools/config/config.h"

namespace fsdptrain::tools {

// ShardedStep of one rank, on random tokens that lie in memory: train.micro_batch rows of
// train.seq_len.
class StepModel {
 public:
  explicit StepModel(const Config& config);

  double run() { return run(batch_); }
  double run(const data::Batch& batch) { return step_.run(batch); }
  double loss() const { return step_.loss(); }

  std::int64_t num_parameters() { return step_.num_parameters(); }

 private:
  comm::LoneWorld alone_;
  ShardedStep step_;
  data::Batch batch_;
};

// `rows` rows of random tokens, others for another `first_sample`.
data::Batch random_batch(std::int64_t rows, std::int64_t seq_len, std::int64_t vocab_size,
                         std::uint64_t first_sample = 0);

}  // namespace fsdptrain::tools
