#include "tools/train/data_parallel.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/ignored_target.h"

namespace fsdptrain::tools {
namespace {

void mask_all(data::Batch& batch) {
  std::ranges::fill(batch.targets, kIgnoredTarget);
  batch.num_targets = 0;
}

}  // namespace

std::vector<data::Batch> micro_batches_of_rank(const data::Loader& loader, std::uint64_t step,
                                               const comm::Member& member) {
  const std::int64_t num_micro_batches = loader.num_micro_batches();
  std::vector<data::Batch> batches;
  for (std::int64_t first = 0; first < num_micro_batches; first += member.size) {
    const std::int64_t index = first + member.rank;
    data::Batch& batch =
        batches.emplace_back(loader.micro_batch(step, std::min(index, num_micro_batches - 1)));
    if (index >= num_micro_batches) {
      mask_all(batch);
    }
  }
  return batches;
}

std::int64_t num_micro_batches_of_rank(const TrainConfig& train, int num_ranks,
                                       std::string_view who) {
  const std::int64_t of_step = train.global_batch / train.micro_batch;
  check<ConfigError>(
      num_ranks <= of_step,
      "{}: {} ranks need as many micro-batches, but a step has {} "
      "(train.global_batch / train.micro_batch): take no more ranks than that, lower "
      "train.micro_batch or raise train.global_batch",
      who, num_ranks, of_step);
  return (of_step + num_ranks - 1) / num_ranks;
}

std::size_t global_micro_batch(std::size_t index, const comm::Member& member) {
  return index * static_cast<std::size_t>(member.size) + static_cast<std::size_t>(member.rank);
}

DataParallelStep::DataParallelStep(TrainStep& step, const shard::ShardedModel& model,
                                   comm::World& world)
    : step_(step), world_(world) {
  std::uint32_t group = 0;
  for (const std::string& name : model.tag_group_names()) {
    world_.name_group(0, group++, name);
  }
  world_.name_group(0, group, "the loss");
  loss_group_ = group;
}

TrainStep::Share DataParallelStep::share_of(std::span<const data::Batch> micro_batches) {
  TrainStep::Share share = whole_step(micro_batches);
  const Tensor num_targets = Tensor::zeros({1}, DType::Int64);
  num_targets.mutable_values<std::int64_t>()[0] = share.num_targets;
  world_.control().issue(comm::all_reduce(num_targets)).wait();
  share.num_targets = num_targets.values<std::int64_t>()[0];
  return share;
}

TrainStep::Result DataParallelStep::forward_backward(const TrainStep::Share& share,
                                                     std::uint64_t step) {
  if (share.num_targets == 0) {
    step_.discard();
    return {};
  }
  const Tensor loss = step_.accumulate(share, step);
  world_.group()
      .issue(comm::all_reduce(
          loss, {}, {.group = loss_group_, .invocation = static_cast<std::uint32_t>(step)}))
      .wait();
  const TrainStep::Result result{loss, step_.finish_gradients()};
  // Before the host waits for the device in any other way, which would have no end where another
  // rank failed, and before anything is updated. Ranks in another order may never finish.
  world_.check_order();
  world_.finish();
  return result;
}

}  // namespace fsdptrain::tools
