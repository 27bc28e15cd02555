#include "tools/train/training_rank.h"

#include <cstdint>

#include "runtime/base/rank_context.h"
#include "tools/train/from_config.h"

namespace fsdptrain::tools {

TrainingRank::TrainingRank(const Config& config, comm::ProcessGroup& ranks,
                           comm::ProcessGroup* replicas)
    : config_(config),
      model_(build_model(config_)),
      sharded_(shard_model(config_, *model_, ranks, replicas)),
      optimizer_(build_optimizer(config_.optimizer, sharded_->chunks())),
      step_(*model_, *sharded_, *optimizer_, step_options(config_)) {
  current_context().random.seed = static_cast<std::uint64_t>(config_.run.seed);
}

void TrainingRank::begin_average() {
  if (config_.train.ema_decay > 0) {
    average_.emplace(sharded_->chunks(), config_.train.ema_decay);
  }
}

void TrainingRank::update_average() {
  if (average_) {
    average_->update(sharded_->chunks());
  }
}

}  // namespace fsdptrain::tools
