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

TrainStep::Result TrainStep::run(std::span<const data::Batch> micro_batches, std::uint64_t step,
                                 double lr) {
  std::int64_t num_targets = 0;
  for (const data::Batch& batch : micro_batches) {
    num_targets += batch.num_targets;
  }
  Result result;
  if (num_targets == 0) {
    return result;
  }
  result.loss = Tensor::zeros({}, DType::Float64, device_);
  parameters_.zero_grad();
  RandomKeys& random = current_context().random;
  random.step = step;
  for (const data::Batch& batch : micro_batches) {
    random.first_sample = batch.first_sample;
    const Tensor loss = model_.loss(models::one_document(to_tensor(batch.tokens, batch, device_)),
                                    to_tensor(batch.targets, batch, device_),
                                    {.loss_scale = 1.0 / static_cast<double>(num_targets),
                                     .form = ops::HeadForm::GradientInForward});
    autograd::backward(loss);
    kernels::accumulate(loss.launch(), result.loss.view(), loss.view());
  }
  parameters_.mark_active_segments();
  auto& chunks = parameters_.chunks();
  result.grad_norm = optim::gradient_norm(chunks);
  const Tensor factor =
      options_.grad_clip > 0 ? optim::clip_factor(result.grad_norm, options_.grad_clip) : Tensor();
  optimizer_.step(chunks, lr, factor);
  parameters_.bump_epoch();
  return result;
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
