#include "tools/bench/sharded_step.h"

#include <cmath>

#include "runtime/base/error.h"
#include "tools/stopwatch.h"

namespace fsdptrain::tools {

ShardedStep::ShardedStep(const Config& config, comm::ProcessGroup& ranks)
    : ranks_(ranks),
      rank_(config, ranks),
      loss_group_(static_cast<std::uint32_t>(rank_.sharded().tag_group_names().size())) {}

double ShardedStep::run(const data::Batch& batch) {
  const Stopwatch stopwatch;
  const Tensor loss = rank_.step().accumulate(
      {.micro_batches = {&batch, 1}, .num_targets = batch.num_targets * ranks_.size()}, steps_);
  if (ranks_.size() > 1) {
    const comm::Tag tag{.group = loss_group_, .invocation = static_cast<std::uint32_t>(steps_)};
    ranks_.issue(comm::all_reduce(loss, {}, tag)).wait();
  }
  rank_.step().finish_gradients();
  rank_.step().update(rank_.config().optimizer.lr);
  const double seconds = stopwatch.seconds();
  ++steps_;
  loss_ = ranks_.device() == Device::meta() ? 0 : loss.item();
  check(std::isfinite(loss_), "bench: step {} gave the loss {}", steps_, loss_);
  return seconds;
}

}  // namespace fsdptrain::tools
