#include "tools/bench/sharded_step.h"

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tools/stopwatch.h"
#include "tools/train/from_config.h"

namespace fsdptrain::tools {

ShardedStep::ShardedStep(const Config& config, comm::ProcessGroup& ranks)
    : ranks_(ranks),
      model_(build_model(config)),
      sharded_(shard_model(config, *model_, ranks)),
      optimizer_(build_optimizer(config.optimizer, sharded_->chunks())),
      step_(*model_, *sharded_, *optimizer_, step_options(config)),
      lr_(config.optimizer.lr),
      loss_group_(static_cast<std::uint32_t>(sharded_->tag_group_names().size())) {
  current_context().random.seed = static_cast<std::uint64_t>(config.run.seed);
}

double ShardedStep::run(const data::Batch& batch) {
  const Stopwatch stopwatch;
  const Tensor loss = step_.accumulate(
      {.micro_batches = {&batch, 1}, .num_targets = batch.num_targets * ranks_.size()}, steps_);
  if (ranks_.size() > 1) {
    const comm::Tag tag{.group = loss_group_, .invocation = static_cast<std::uint32_t>(steps_)};
    ranks_.issue(comm::all_reduce(loss, {}, tag)).wait();
  }
  step_.finish_gradients();
  step_.update(lr_);
  const double seconds = stopwatch.seconds();
  ++steps_;
  loss_ = ranks_.device() == Device::meta() ? 0 : loss.item();
  check(std::isfinite(loss_), "bench: step {} gave the loss {}", steps_, loss_);
  return seconds;
}

}  // namespace fsdptrain::tools
