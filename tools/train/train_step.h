#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "models/common/decoder.h"
#include "runtime/data/loader.h"
#include "runtime/optim/optimizer.h"
#include "shard/sharded_model.h"

namespace fsdptrain::tools {

// One optimizer step in two halves: forward and backward of every micro-batch, then clipping and
// update. Runs on the ranks that the model is shared out over, all of which call the same, and on
// their device, meta included; between the halves the caller looks at what the first one gave, so
// that a loss or a gradient that is not finite never reaches the weights.
class TrainStep {
 public:
  struct Options {
    // Largest gradient norm; 0: no clipping.
    double grad_clip = 0;
    // Of the loss (LinearCrossEntropyOptions).
    double label_smoothing = 0;
    double z_loss = 0;
    // Gradients of all micro-batches are added up whole, before one reduction over the ranks.
    bool unsharded_gradients = false;
  };
  // What of a step is computed here: on all ranks as many micro-batches.
  struct Share {
    std::span<const data::Batch> micro_batches;
    // Unmasked targets of the whole step, here and elsewhere.
    std::int64_t num_targets = 0;
  };
  struct Result {
    // float64, one element each, on the device: the mean loss over the step's targets, and the
    // gradient norm before clipping. Undefined where all targets of the step are masked: there is
    // nothing to learn, and nothing to update with.
    Tensor loss;
    Tensor grad_norm;
  };

  // The arguments outlive this object.
  TrainStep(models::Decoder& model, shard::ShardedModel& sharded, optim::Optimizer& optimizer,
            const Options& options);

  // A whole step: accumulate(), then finish_gradients().
  Result forward_backward(std::span<const data::Batch> micro_batches, std::uint64_t step);
  // Forgets the gradients there are; then runs forward and backward of every micro-batch of a share
  // with targets. The gradients are those of the whole step; the loss that is returned (float64,
  // one element, on the device) is what the share adds to that of the step. `step` keys the random
  // numbers, seed taken from the bound context. Every target weighs the same, whatever the
  // micro-batch it is in. `before_each` is told the number of every micro-batch.
  Tensor accumulate(const Share& share, std::uint64_t step,
                    const std::function<void(std::size_t micro_batch)>& before_each = {});
  // The norm of the gradients: update() may use them.
  Tensor finish_gradients();
  // Updates the parameters, once, with the gradients that were finished before; Error if there are
  // none.
  void update(double lr);
  // Forgets the gradients: the step updates nothing.
  void discard();

 private:
  models::Decoder& model_;
  shard::ShardedModel& sharded_;
  optim::Optimizer& optimizer_;
  Options options_;
  // Of the gradients that update() will use; undefined where there are none.
  Tensor grad_norm_;
};

// Micro-batches that are a whole step.
TrainStep::Share whole_step(std::span<const data::Batch> micro_batches);

}  // namespace fsdptrain::tools
