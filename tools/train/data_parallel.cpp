#include "tools/train/data_parallel.h"

#include <algorithm>

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

std::size_t global_micro_batch(std::size_t index, const comm::Member& member) {
  return index * static_cast<std::size_t>(member.size) + static_cast<std::size_t>(member.rank);
}

DataParallelStep::DataParallelStep(TrainStep& step, nn::FlatParameters& parameters,
                                   comm::World& world)
    : step_(step), parameters_(parameters), world_(world) {
  // The groups of the tags below.
  std::uint32_t group = 0;
  for (const auto& parameter : parameters_.named()) {
    world_.name_group(0, group++, parameter.name);
  }
  world_.name_group(0, group, "the loss");
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
  add_up_gradients(step);
  world_.group()
      .issue(comm::all_reduce(loss, {},
                              {.group = static_cast<std::uint32_t>(parameters_.named().size()),
                               .invocation = static_cast<std::uint32_t>(step)}))
      .wait();
  // Before the host waits for the device in any other way, which would have no end where another
  // rank failed, and before anything is updated. Ranks in another order may never finish.
  world_.check_order();
  world_.finish();
  return {loss, step_.finish_gradients()};
}

void DataParallelStep::add_up_gradients(std::uint64_t step) {
  const auto& parameters = parameters_.named();
  std::vector<comm::Work> works;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const Tensor& gradient = parameters[index].gradient;
    // Frozen parameters have none.
    if (gradient.defined()) {
      works.push_back(
          world_.group().issue(comm::all_reduce(gradient, {},
                                                {.group = static_cast<std::uint32_t>(index),
                                                 .invocation = static_cast<std::uint32_t>(step),
                                                 .direction = comm::Direction::Backward})));
    }
  }
  for (comm::Work& work : works) {
    work.wait();
  }
}

}  // namespace fsdptrain::tools
