#include "tools/train/train_step.h"

#include "kernels/copy.h"
#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tools/train/batch_tensors.h"

namespace fsdptrain::tools {

TrainStep::TrainStep(models::Decoder& model, shard::ShardedModel& sharded,
                     optim::Optimizer& optimizer, const Options& options)
    : model_(model), sharded_(sharded), optimizer_(optimizer), options_(options) {}

TrainStep::Result TrainStep::forward_backward(std::span<const data::Batch> micro_batches,
                                              std::uint64_t step) {
  const Share share = whole_step(micro_batches);
  if (share.num_targets == 0) {
    discard();
    return {};
  }
  const Tensor loss = accumulate(share, step);
  return {loss, finish_gradients()};
}

Tensor TrainStep::accumulate(const Share& share, std::uint64_t step,
                             const std::function<void(std::size_t micro_batch)>& before_each) {
  discard();
  const Device device = sharded_.ranks().device();
  const Tensor sum = Tensor::zeros({}, DType::Float64, device);
  RandomKeys& random = current_context().random;
  random.step = step;
  for (std::size_t index = 0; index < share.micro_batches.size(); ++index) {
    if (before_each) {
      before_each(index);
    }
    const data::Batch& batch = share.micro_batches[index];
    random.first_sample = batch.first_sample;
    const bool is_last = index + 1 == share.micro_batches.size();
    sharded_.set_is_last_backward(is_last);
    if (options_.unsharded_gradients) {
      sharded_.set_requires_gradient_sync(is_last);
    }
    const Tensor loss = model_.loss(rows_of(batch, device), targets_of(batch, device),
                                    {.loss_scale = 1.0 / static_cast<double>(share.num_targets),
                                     .label_smoothing = options_.label_smoothing,
                                     .z_loss = options_.z_loss,
                                     .form = ops::HeadForm::GradientInForward});
    autograd::backward(loss);
    kernels::accumulate(loss.launch(), sum.view(), loss.view());
  }
  return sum;
}

Tensor TrainStep::finish_gradients() {
  grad_norm_ = sharded_.gradient_norm();
  return grad_norm_;
}

void TrainStep::update(double lr) {
  check(grad_norm_.defined(),
        "train: an update needs the gradients of a step that had targets, and one update is all "
        "that they are for");
  const Tensor factor =
      options_.grad_clip > 0 ? optim::clip_factor(grad_norm_, options_.grad_clip) : Tensor();
  grad_norm_ = Tensor();
  optimizer_.step(sharded_.chunks(), lr, factor);
  sharded_.bump_epoch();
}

void TrainStep::discard() {
  grad_norm_ = Tensor();
  sharded_.zero_grad();
}

TrainStep::Share whole_step(std::span<const data::Batch> micro_batches) {
  TrainStep::Share share{.micro_batches = micro_batches};
  for (const data::Batch& batch : micro_batches) {
    share.num_targets += batch.num_targets;
  }
  return share;
}

}  // namespace fsdptrain::tools
