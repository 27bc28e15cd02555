#include "tools/train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/ignored_target.h"
#include "runtime/data/byte_text.h"
#include "runtime/data/loader.h"
#include "runtime/nn/evaluation_guard.h"
#include "tools/train/batch_tensors.h"

namespace fsdptrain::tools {
namespace {

std::int64_t count_bytes(const data::Vocabulary& vocabulary, const data::Batch& batch) {
  if (vocabulary.tokenizer != data::kByteTokenizer) {
    return 0;
  }
  return std::ranges::count_if(batch.targets, [](std::int64_t target) {
    return target != kIgnoredTarget && target != data::kByteEndOfDocument;
  });
}

// What a dataset contributes where so many more forwards are allowed.
struct Share {
  std::uint64_t forwards;
  std::uint64_t samples;
};

Share share_of(const data::TokenDataset& dataset, std::uint64_t batch, std::uint64_t left) {
  const std::uint64_t all = dataset.num_samples();
  const std::uint64_t forwards = std::min((all + batch - 1) / batch, left);
  return {forwards, forwards < left ? all : std::min(all, forwards * batch)};
}

// Forwards that may be done, over all datasets.
std::uint64_t max_forwards(const EvaluationOptions& options) {
  return options.max_batches == 0 ? std::numeric_limits<std::uint64_t>::max()
                                  : static_cast<std::uint64_t>(options.max_batches);
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
  std::uint64_t left = max_forwards(options);
  std::uint64_t samples = 0;
  for (const auto& dataset : datasets) {
    const Share share = share_of(*dataset, static_cast<std::uint64_t>(options.batch), left);
    left -= share.forwards;
    samples += share.samples;
  }
  return samples;
}

LossTotals evaluate(models::Decoder& model,
                    std::span<const std::shared_ptr<const data::TokenDataset>> datasets,
                    const EvaluationOptions& options) {
  const autograd::NoGradGuard no_grad;
  const nn::EvaluationGuard evaluation(model);
  LossTotals totals;
  const auto step = static_cast<std::uint64_t>(options.batch);
  std::uint64_t left = max_forwards(options);
  for (const auto& dataset : datasets) {
    const Share share = share_of(*dataset, step, left);
    left -= share.forwards;
    for (std::uint64_t first = 0; first < share.samples; first += step) {
      const std::uint64_t rows = std::min(step, share.samples - first);
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
