#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/data/mixture.h"
#include "runtime/data/token_dataset.h"

namespace fsdptrain::data {

// Rows of tokens, each batch * seq_len values, row by row.
struct Batch {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> targets;
  std::int64_t batch = 0;
  std::int64_t seq_len = 0;
  // The global number of the first row's sample; the rows are numbered from it on.
  std::uint64_t first_sample = 0;
  // Targets that are not ignored.
  std::int64_t num_targets = 0;
  // Of each token in its document, and the number of that document in its row (TokenDataset).
  std::vector<std::int64_t> positions = {};
  std::vector<std::int64_t> document_ids = {};
};

struct WeightedDataset {
  std::shared_ptr<const TokenDataset> dataset;
  // Beside the other weights; 0 leaves it out.
  double weight = 1;
};

// Training data of one source or several, in shuffled order, computed from the position alone: the
// loader has no state, so that a run resumes at any step, and the samples of a step do not depend
// on who reads them. Sources take turns as Mixture says; each goes through its samples in epochs
// of its own, every epoch in an order of its own.
class Loader {
 public:
  struct Options {
    std::uint64_t seed = 0;
    std::int64_t global_batch = 1;  // samples per optimizer step
    std::int64_t micro_batch = 1;   // samples per batch; divides global_batch
    // The number of the first sample of step 0, modulo 2^64: another than 0 where steps had other
    // sizes before.
    std::uint64_t first_sample = 0;
  };

  // Where a sample comes from: sample `window` of a dataset, which is in its `epoch`-th round.
  struct Sample {
    std::size_t source = 0;
    std::uint64_t epoch = 0;
    std::uint64_t window = 0;

    friend bool operator==(const Sample&, const Sample&) = default;
  };

  // ConfigError for sizes or weights that do not fit; DataError if the sources have not all one
  // vocabulary.
  Loader(std::vector<WeightedDataset> sources, const Options& options);

  std::int64_t num_micro_batches() const { return options_.global_batch / options_.micro_batch; }
  // Micro-batch `index` of `step` holds the samples numbered from
  // first_sample + step * global_batch + index * micro_batch on.
  Batch micro_batch(std::uint64_t step, std::int64_t index) const;
  Sample sample(std::uint64_t number) const;

 private:
  std::vector<WeightedDataset> sources_;
  Options options_;
  Mixture mixture_;
};

// Samples [first, first + batch) of a dataset in its own order: evaluation.
Batch sequential_batch(const TokenDataset& dataset, std::uint64_t first, std::int64_t batch);

}  // namespace fsdptrain::data
