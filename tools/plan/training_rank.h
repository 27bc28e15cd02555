#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "comm/process_group.h"
#include "models/common/decoder.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/weight_average.h"
#include "shard/sharded_model.h"
#include "tools/config.h"
#include "tools/train/rank_mesh.h"
#include "tools/train/train_step.h"

namespace fsdptrain::tools {

// What a micro-batch begins with.
inline constexpr std::string_view kMicroBatchBegins = "the tokens of a micro-batch";

// What one rank of a run trains with, made as the trainer makes it, on the device of its ranks, and
// what the trainer does with it, on tokens of zeros: as many as a real run has, and no data. All
// ranks call the same.
class TrainingRank {
 public:
  // Told what begins.
  using At = std::function<void(std::string_view what)>;

  // `all` is the group of all ranks and outlives this. ConfigError as training refuses it.
  TrainingRank(const Config& config, comm::ProcessGroup& all, const RankMesh::NewGroup& new_group);

  models::Decoder& model() { return *model_; }
  shard::ShardedModel& sharded() { return *sharded_; }
  bool has_average() const { return average_.has_value(); }

  // A step of so many micro-batches: forwards and backwards, clipping, the update and the average
  // of weights.
  void step(std::int64_t num_micro_batches, const At& at = {});
  // The longest of the forwards that make samples, if there are prompts: with all parameters
  // gathered, which on a CPU they stay where they fit.
  void sample();
  // The largest parameter becomes whole on rank 0, as all do, one after the other, when weights are
  // written.
  void gather_largest();

 private:
  data::Batch batch() const;

  Config config_;
  comm::ProcessGroup& all_;
  std::unique_ptr<models::Decoder> model_;
  RankMesh mesh_;
  std::unique_ptr<shard::ShardedModel> sharded_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  TrainStep step_;
  std::optional<optim::WeightAverage> average_;
  std::uint64_t num_steps_ = 0;
};

// Of one rank in a step. ConfigError, as training refuses it, where some ranks would have none.
std::int64_t num_micro_batches(const TrainConfig& train, int num_ranks);

}  // namespace fsdptrain::tools
