#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/data/token_dataset.h"

namespace fsdptrain::data {

// Rows of tokens and their targets, both batch * seq_len values, row by row.
struct Batch {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> targets;
  std::int64_t batch = 0;
  std::int64_t seq_len = 0;
  // The global number of the first row's sample; the rows are numbered from it on.
  std::uint64_t first_sample = 0;
  // Targets that are not ignored.
  std::int64_t num_targets = 0;
};

// Training data in shuffled order, computed from the position alone: the loader has no state, so
// that a run resumes at any step, and the samples of a step do not depend on who reads them.
class Loader {
 public:
  struct Options {
    std::uint64_t seed = 0;
    std::int64_t global_batch = 1;  // samples per optimizer step
    std::int64_t micro_batch = 1;   // samples per batch; divides global_batch
  };

  // ConfigError for sizes that do not fit.
  Loader(std::shared_ptr<const TokenDataset> dataset, const Options& options);

  std::int64_t num_micro_batches() const { return options_.global_batch / options_.micro_batch; }
  // Micro-batch `index` of `step` holds the samples numbered from
  // step * global_batch + index * micro_batch on.
  Batch micro_batch(std::uint64_t step, std::int64_t index) const;

 private:
  std::shared_ptr<const TokenDataset> dataset_;
  Options options_;
};

// Samples [first, first + batch) of a dataset in its own order: evaluation.
Batch sequential_batch(const TokenDataset& dataset, std::uint64_t first, std::int64_t batch);

}  // namespace fsdptrain::data
