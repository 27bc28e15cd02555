#include "tools/bench/one_process_step.h"

#include <utility>

#include "tools/bench/affinity.h"

namespace fsdptrain::tools {
namespace {

data::Batch batch_of_all(const Config& config, int num_ranks) {
  data::Batch all = rank_batch(config, 0);
  for (int rank = 1; rank < num_ranks; ++rank) {
    const data::Batch part = rank_batch(config, rank);
    all.batch += part.batch;
    all.num_targets += part.num_targets;
    for (const auto values : {&data::Batch::tokens, &data::Batch::targets, &data::Batch::positions,
                              &data::Batch::document_ids}) {
      (all.*values).insert((all.*values).end(), (part.*values).begin(), (part.*values).end());
    }
  }
  return all;
}

}  // namespace

OneProcessStep::OneProcessStep(const Config& config, int num_ranks, int threads,
                               std::vector<int> cores)
    : cores_(std::move(cores)), batch_(batch_of_all(config, num_ranks)) {
  const AffinityGuard affinity(cores_);
  context_.emplace(RankContext::Options{.threads = threads});
  const ContextGuard guard(*context_);
  model_.emplace(config);
}

OneProcessStep::~OneProcessStep() {
  const ContextGuard guard(*context_);
  model_.reset();
}

double OneProcessStep::run() {
  const AffinityGuard affinity(cores_);
  const ContextGuard guard(*context_);
  return model_->run(batch_);
}

data::Batch rank_batch(const Config& config, int rank) {
  const std::int64_t rows = config.train.micro_batch;
  return random_batch(rows, config.train.seq_len, config.model.vocab_size,
                      static_cast<std::uint64_t>(rank * rows));
}

}  // namespace fsdptrain::tools
