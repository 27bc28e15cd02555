#include "tools/plan/rehearsal.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "runtime/autograd/grad_mode.h"
#include "runtime/nn/evaluation_guard.h"
#include "shard/gathered_scope.h"
#include "shard/parts.h"

namespace fsdptrain::tools {
namespace {

data::Batch blank_batch(const TrainConfig& train, Device device) {
  const std::int64_t num_tokens = train.micro_batch * train.seq_len;
  // On meta nobody reads tokens.
  const std::vector<std::int64_t> zeros(
      device == Device::meta() ? 0 : static_cast<std::size_t>(num_tokens));
  return {.tokens = zeros,
          .targets = zeros,
          .batch = train.micro_batch,
          .seq_len = train.seq_len,
          .num_targets = num_tokens,
          .positions = zeros,
          .document_ids = zeros};
}

}  // namespace

void rehearse_step(TrainingRank& rank, comm::ProcessGroup& all, std::int64_t num_micro_batches,
                   std::uint64_t number, const At& at) {
  const auto tell = [&at](std::string_view what) {
    if (at) {
      at(what);
    }
  };
  const std::vector<data::Batch> batches(static_cast<std::size_t>(num_micro_batches),
                                         blank_batch(rank.config().train, all.device()));
  TrainStep::Share share = whole_step(batches);
  share.num_targets *= all.size();
  const Tensor loss = rank.step().accumulate(
      share, number, [&tell](std::size_t /*micro_batch*/) { tell(kMicroBatchBegins); });
  tell("the loss of all ranks");
  all.issue(comm::all_reduce(loss)).wait();
  tell("the norm of gradients");
  rank.step().finish_gradients();
  tell("the update");
  rank.step().update(rank.config().optimizer.lr);
  if (rank.average() != nullptr) {
    tell("the average of weights");
    rank.update_average();
  }
}

void rehearse_samples(TrainingRank& rank) {
  const EvalConfig& eval = rank.config().eval;
  if (eval.prompts.empty()) {
    return;
  }
  models::Decoder& model = rank.model();
  std::size_t longest = 0;
  for (const std::string& prompt : eval.prompts) {
    longest = std::max(longest, prompt.size());
  }
  const std::int64_t length =
      std::min(static_cast<std::int64_t>(longest) + eval.sample_tokens - 1, model.max_seq_len());
  const autograd::NoGradGuard no_grad;
  const nn::EvaluationGuard evaluation(model);
  std::optional<shard::GatheredScope> gathered;
  if (rank.config().run.device == "cpu") {
    gathered.emplace(rank.sharded());
  }
  const Tensor tokens = Tensor::zeros({1, length}, DType::Int64, rank.sharded().ranks().device(),
                                      MemoryCategory::Data);
  model.logits(models::one_document(tokens));
}

void rehearse_gathering(TrainingRank& rank) {
  const std::vector<shard::ParameterPart> parts = shard::parts_of(rank.sharded());
  const auto nbytes = [](const shard::ParameterPart& part) {
    return part.shape.numel() * static_cast<std::int64_t>(size_of(part.dtype()));
  };
  const auto largest = std::ranges::max_element(parts, {}, nbytes);
  shard::gather_to(0, *largest, largest->chunk, rank.sharded().ranks());
}

}  // namespace fsdptrain::tools
