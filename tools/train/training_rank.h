#pragma once

#include <memory>
#include <optional>

#include "comm/process_group.h"
#include "models/common/decoder.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/weight_average.h"
#include "shard/sharded_model.h"
#include "tools/config/config.h"
#include "tools/train/train_step.h"

namespace fsdptrain::tools {

// What one rank trains with, as a configuration says: the model, the rank's part of it, an
// optimizer, the step, and the average of weights where train.ema_decay asks for one. On the device
// of its ranks, meta included; whoever trains, plans or measures a model makes it here.
class TrainingRank {
 public:
  // `ranks` share the model out; `replicas` as ShardedModel::Options has it. Both outlive this.
  // ConfigError for what cannot be trained. Keys the random numbers of the bound context. All ranks
  // do the same.
  TrainingRank(const Config& config, comm::ProcessGroup& ranks,
               comm::ProcessGroup* replicas = nullptr);

  const Config& config() const { return config_; }
  models::Decoder& model() { return *model_; }
  shard::ShardedModel& sharded() { return *sharded_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  TrainStep& step() { return step_; }
  // Null where there is none, or none yet.
  optim::WeightAverage* average() { return average_ ? &*average_ : nullptr; }

  // The average, if there is to be one, begins as the parameters are now.
  void begin_average();
  // Behind every update.
  void update_average();

 private:
  Config config_;
  std::unique_ptr<models::Decoder> model_;
  std::unique_ptr<shard::ShardedModel> sharded_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  TrainStep step_;
  std::optional<optim::WeightAverage> average_;
};

}  // namespace fsdptrain::tools
