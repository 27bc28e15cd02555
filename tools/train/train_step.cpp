#include "tools/train/train_step.h"

#include <algorithm>

#include "kernels/copy.h"
#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::tools {
namespace {

// Evaluation mode for the lifetime of the guard; then what was before.
class EvaluationGuard {
 public:
  explicit EvaluationGuard(nn::Module& module) : module_(module), was_training_(module.training()) {
    module_.set_training(false);
  }
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;
  ~EvaluationGuard() { module_.set_training(was_training_); }

 private:
  nn::Module& module_;
  bool was_training_;
};

}  // namespace

Tensor to_tensor(const std::vector<std::int64_t>& values, const data::Batch& batch, Device device) {
  const Shape shape{batch.batch, batch.seq_len};
  if (device == Device::meta()) {
    return Tensor::empty(shape, DType::Int64, device, MemoryCategory::Data);
  }
  check<DeviceError>(device == Device::cpu(), "train: batches can be put on cpu, not on {}",
                     device);
  return Tensor::from<std::int64_t>(values, shape, MemoryCategory::Data);
}

TrainStep::TrainStep(models::Decoder& model, nn::FlatParameters& parameters,
                     optim::Optimizer& optimizer, Device device, const Options& options)
    : model_(model),
      parameters_(parameters),
      optimizer_(optimizer),
      device_(device),
      options_(options) {}

TrainStep::Result TrainStep::forward_backward(
    std::span<const data::Batch> micro_batches, std::uint64_t step,
    const std::function<void(std::size_t micro_batch)>& before_each) {
  discard();
  std::int64_t num_targets = 0;
  for (const data::Batch& batch : micro_batches) {
    num_targets += batch.num_targets;
  }
  Result result;
  if (num_targets == 0) {
    return result;
  }
  result.loss = Tensor::zeros({}, DType::Float64, device_);
  RandomKeys& random = current_context().random;
  random.step = step;
  for (std::size_t index = 0; index < micro_batches.size(); ++index) {
    if (before_each) {
      before_each(index);
    }
    const data::Batch& batch = micro_batches[index];
    random.first_sample = batch.first_sample;
    const Tensor loss = model_.loss(models::one_document(to_tensor(batch.tokens, batch, device_)),
                                    to_tensor(batch.targets, batch, device_),
                                    {.loss_scale = 1.0 / static_cast<double>(num_targets),
                                     .form = ops::HeadForm::GradientInForward});
    autograd::backward(loss);
    kernels::accumulate(loss.launch(), result.loss.view(), loss.view());
  }
  parameters_.mark_active_segments();
  grad_norm_ = optim::gradient_norm(parameters_.chunks());
  result.grad_norm = grad_norm_;
  return result;
}

void TrainStep::update(double lr) {
  check(grad_norm_.defined(),
        "train: an update needs the gradients of a forward_backward() that had targets, and one "
        "update is all that they are for");
  const Tensor factor =
      options_.grad_clip > 0 ? optim::clip_factor(grad_norm_, options_.grad_clip) : Tensor();
  grad_norm_ = Tensor();
  optimizer_.step(parameters_.chunks(), lr, factor);
  parameters_.bump_epoch();
}

void TrainStep::discard() {
  grad_norm_ = Tensor();
  parameters_.zero_grad();
}

std::optional<double> evaluate(models::Decoder& model, const data::TokenDataset& dataset,
                               std::uint64_t num_samples, std::int64_t batch) {
  const autograd::NoGradGuard no_grad;
  const EvaluationGuard evaluation(model);
  double total = 0;
  std::int64_t num_targets = 0;
  for (std::uint64_t first = 0; first < num_samples; first += static_cast<std::uint64_t>(batch)) {
    const auto rows =
        std::min<std::uint64_t>(static_cast<std::uint64_t>(batch), num_samples - first);
    const data::Batch part =
        data::sequential_batch(dataset, first, static_cast<std::int64_t>(rows));
    const Tensor loss =
        model.loss(models::one_document(to_tensor(part.tokens, part, Device::cpu())),
                   to_tensor(part.targets, part, Device::cpu()), {});
    total += loss.item();
    num_targets += part.num_targets;
  }
  if (num_targets == 0) {
    return std::nullopt;
  }
  return total / static_cast<double>(num_targets);
}

}  // namespace fsdptrain::tools
