#include "tools/plan/training_rank.h"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/nn/evaluation_guard.h"
#include "shard/gathered_scope.h"
#include "shard/parts.h"
#include "tools/train/batch_tensors.h"
#include "tools/train/from_config.h"

namespace fsdptrain::tools {

TrainingRank::TrainingRank(const Config& config, comm::ProcessGroup& all,
                           const RankMesh::NewGroup& new_group)
    : config_(config),
      all_(all),
      model_(build_model(config_)),
      mesh_(config_.mesh, all, new_group),
      sharded_(shard_model(config_, *model_, mesh_.shard(), mesh_.replicas())),
      optimizer_(build_optimizer(config_.optimizer, sharded_->chunks())),
      step_(*model_, *sharded_, *optimizer_, step_options(config_)) {
  if (config_.train.ema_decay > 0) {
    average_.emplace(sharded_->chunks(), config_.train.ema_decay);
  }
}

data::Batch TrainingRank::batch() const {
  const TrainConfig& train = config_.train;
  const std::int64_t num_tokens = train.micro_batch * train.seq_len;
  // On meta nobody reads tokens.
  const std::vector<std::int64_t> zeros(
      all_.device() == Device::meta() ? 0 : static_cast<std::size_t>(num_tokens));
  return {.tokens = zeros,
          .targets = zeros,
          .batch = train.micro_batch,
          .seq_len = train.seq_len,
          .num_targets = num_tokens,
          .positions = zeros,
          .document_ids = zeros};
}

void TrainingRank::step(std::int64_t num_micro_batches, const At& at) {
  const auto tell = [&at](std::string_view what) {
    if (at) {
      at(what);
    }
  };
  const std::vector<data::Batch> batches(static_cast<std::size_t>(num_micro_batches), batch());
  TrainStep::Share share = whole_step(batches);
  share.num_targets *= all_.size();
  const Tensor loss = step_.accumulate(
      share, num_steps_++, [&tell](std::size_t /*micro_batch*/) { tell(kMicroBatchBegins); });
  tell("the loss of all ranks");
  all_.issue(comm::all_reduce(loss)).wait();
  tell("the norm of gradients");
  step_.finish_gradients();
  tell("the update");
  step_.update(config_.optimizer.lr);
  if (average_) {
    tell("the average of weights");
    average_->update(sharded_->chunks());
  }
}

void TrainingRank::sample() {
  const EvalConfig& eval = config_.eval;
  if (eval.prompts.empty()) {
    return;
  }
  std::size_t longest = 0;
  for (const std::string& prompt : eval.prompts) {
    longest = std::max(longest, prompt.size());
  }
  const std::int64_t length =
      std::min(static_cast<std::int64_t>(longest) + eval.sample_tokens - 1, model_->max_seq_len());
  const autograd::NoGradGuard no_grad;
  const nn::EvaluationGuard evaluation(*model_);
  std::optional<shard::GatheredScope> gathered;
  if (config_.run.device == "cpu") {
    gathered.emplace(*sharded_);
  }
  const Tensor tokens =
      Tensor::zeros({1, length}, DType::Int64, all_.device(), MemoryCategory::Data);
  model_->logits(models::one_document(tokens));
}

void TrainingRank::gather_largest() {
  const std::vector<shard::ParameterPart> parts = shard::parts_of(*sharded_);
  const auto nbytes = [](const shard::ParameterPart& part) {
    return part.shape.numel() * static_cast<std::int64_t>(size_of(part.dtype()));
  };
  const auto largest = std::ranges::max_element(parts, {}, nbytes);
  shard::gather_to(0, *largest, largest->chunk, sharded_->ranks());
}

std::int64_t num_micro_batches(const TrainConfig& train, int num_ranks) {
  const std::int64_t of_step = train.global_batch / train.micro_batch;
  check<ConfigError>(num_ranks <= of_step,
                     "{} ranks need as many micro-batches, but a step has {} (train.global_batch / "
                     "train.micro_batch): plan at most {} ranks, lower train.micro_batch or raise "
                     "train.global_batch",
                     num_ranks, of_step, of_step);
  return (of_step + num_ranks - 1) / num_ranks;
}

}  // namespace fsdptrain::tools
