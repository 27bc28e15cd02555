#include "tools/train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/ignored_target.h"
#include "runtime/data/byte_text.h"
#include "runtime/data/loader.h"
#include "tools/train/batch_tensors.h"

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

std::int64_t count_bytes(const data::Vocabulary& vocabulary, const data::Batch& batch) {
  if (vocabulary.tokenizer != data::kByteTokenizer) {
    return 0;
  }
  return std::ranges::count_if(batch.targets, [](std::int64_t target) {
    return target != kIgnoredTarget && target != data::kByteEndOfDocument;
  });
}

// Samples that may be taken, of all datasets.
std::uint64_t budget(const EvaluationOptions& options) {
  constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t samples = 0;
  const bool overflows =
      __builtin_mul_overflow(static_cast<std::uint64_t>(options.max_batches),
                             static_cast<std::uint64_t>(options.batch), &samples);
  return options.max_batches == 0 || overflows ? kAll : samples;
}

}  // namespace

double LossTotals::perplexity() const {
  return std::exp(mean());
}

double LossTotals::bits_per_byte() const {
  return nats / (static_cast<double>(num_bytes) * std::numbers::ln2);
}

std::uint64_t num_evaluated(std::span<const std::shared_ptr<const data::TokenDataset>> datasets,
                            const EvaluationOptions& options) {
  std::uint64_t all = 0;
  for (const auto& dataset : datasets) {
    all += dataset->num_samples();
  }
  return std::min(all, budget(options));
}

LossTotals evaluate(models::Decoder& model,
                    std::span<const std::shared_ptr<const data::TokenDataset>> datasets,
                    const EvaluationOptions& options) {
  const autograd::NoGradGuard no_grad;
  const EvaluationGuard evaluation(model);
  LossTotals totals;
  std::uint64_t left = budget(options);
  for (const auto& dataset : datasets) {
    const std::uint64_t end = std::min(dataset->num_samples(), left);
    left -= end;
    for (std::uint64_t first = 0; first < end; first += static_cast<std::uint64_t>(options.batch)) {
      const auto rows = std::min(static_cast<std::uint64_t>(options.batch), end - first);
      const data::Batch batch =
          data::sequential_batch(*dataset, first, static_cast<std::int64_t>(rows));
      totals.nats +=
          model.loss(rows_of(batch, Device::cpu()), targets_of(batch, Device::cpu()), {}).item();
      totals.num_targets += batch.num_targets;
      totals.num_bytes += count_bytes(dataset->source().vocabulary(), batch);
      if (options.progress) {
        options.progress(totals);
      }
    }
  }
  return totals;
}

}  // namespace fsdptrain::tools
