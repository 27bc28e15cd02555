#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "comm/process_group.h"
#include "models/common/decoder.h"
#include "runtime/data/token_dataset.h"

namespace fsdptrain::tools {

// Losses of a model over tokens that it predicted.
struct LossTotals {
  // Sum of the cross entropies.
  double nats = 0;
  std::int64_t num_targets = 0;
  // Bytes of text behind the targets: of byte tokens all but the end of a document; else 0.
  std::int64_t num_bytes = 0;

  double mean() const { return nats / static_cast<double>(num_targets); }
  double perplexity() const;
  // REQUIRES: num_bytes > 0.
  double bits_per_byte() const;
};

struct EvaluationOptions {
  // Samples per forward.
  std::int64_t batch = 1;
  // Forwards at most, over all datasets; 0: no limit.
  std::int64_t max_batches = 0;
  // Told what this rank has so far after each of its forwards; it may throw to stop.
  std::function<void(const LossTotals&)> progress = {};
};

// Samples of all datasets together that evaluate() takes.
std::uint64_t num_evaluated(std::span<const std::shared_ptr<const data::TokenDataset>> datasets,
                            const EvaluationOptions& options);

// Adds up the loss over the datasets, one after the other and in their own order, without history
// and in evaluation mode. num_targets is 0 where every target is masked. Collective over `group`,
// all ranks that the model is on, which share out the forwards: the totals are the same on all of
// them, and the same weights, data and options give the same bits on any number.
LossTotals evaluate(models::Decoder& model,
                    std::span<const std::shared_ptr<const data::TokenDataset>> datasets,
                    const EvaluationOptions& options, comm::ProcessGroup& group);

}  // namespace fsdptrain::tools
