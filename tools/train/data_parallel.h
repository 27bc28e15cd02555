#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/operation.h"
#include "comm/world.h"
#include "runtime/data/loader.h"
#include "tools/config/config.h"
#include "tools/train/train_step.h"

// Training on all ranks of a world, each of which computes a share of every step.
namespace fsdptrain::tools {

// What a rank computes of a step: micro-batch g of the step runs on rank g mod size, as its number
// g div size. All ranks have as many, so that they meet in every collective. One that the step does
// not have is its last with all targets masked: it adds exactly zero, and no value in it that is
// not finite is missing from the last itself.
std::vector<data::Batch> micro_batches_of_rank(const data::Loader& loader, std::uint64_t step,
                                               const comm::Member& member);

// How many those are, of a step as [train] has it. ConfigError, which begins with `who`, where some
// ranks would have none.
std::int64_t num_micro_batches_of_rank(const TrainConfig& train, int num_ranks,
                                       std::string_view who);

// The number in its step of what micro_batches_of_rank() has as number `index`.
std::size_t global_micro_batch(std::size_t index, const comm::Member& member);

// Forward and backward of a step, whose micro-batches are spread over the ranks of a world. The
// arguments outlive this object.
class DataParallelStep {
 public:
  DataParallelStep(TrainStep& step, const shard::ShardedModel& model, comm::World& world);

  // This rank's part of the step that the micro-batches of all ranks are. Collective.
  TrainStep::Share share_of(std::span<const data::Batch> micro_batches);
  // As TrainStep's: loss, norm and gradients are those of the whole step, the same bits on all
  // ranks. Returns when the collectives of the step have ended, on the device too. Collective;
  // MismatchError as World::check_order(), PeerError where another rank has failed.
  TrainStep::Result forward_backward(const TrainStep::Share& share, std::uint64_t step);

 private:
  TrainStep& step_;
  comm::World& world_;
  // Of the tag of the loss.
  std::uint32_t loss_group_ = 0;
};

}  // namespace fsdptrain::tools
