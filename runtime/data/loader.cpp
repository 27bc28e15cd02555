#include "runtime/data/loader.h"

#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/permutation.h"

namespace fsdptrain::data {
namespace {

template <class SampleOf>
Batch read_batch(const TokenDataset& dataset, std::uint64_t first_sample, std::int64_t batch,
                 const SampleOf& sample_of) {
  const auto num_rows = static_cast<std::size_t>(batch);
  const auto length = static_cast<std::size_t>(dataset.seq_len());
  Batch out;
  out.tokens.resize(num_rows * length);
  out.targets.resize(num_rows * length);
  out.batch = batch;
  out.seq_len = dataset.seq_len();
  out.first_sample = first_sample;
  for (std::size_t row = 0; row < num_rows; ++row) {
    out.num_targets += dataset.read(sample_of(first_sample + row),
                                    std::span(out.tokens).subspan(row * length, length),
                                    std::span(out.targets).subspan(row * length, length));
  }
  return out;
}

}  // namespace

Loader::Loader(std::shared_ptr<const TokenDataset> dataset, const Options& options)
    : dataset_(std::move(dataset)), options_(options) {
  check<ConfigError>(options.micro_batch >= 1 && options.global_batch >= 1 &&
                         options.global_batch % options.micro_batch == 0,
                     "loader: global_batch must be a multiple of micro_batch, got {} and {}",
                     options.global_batch, options.micro_batch);
}

Batch Loader::micro_batch(std::uint64_t step, std::int64_t index) const {
  check<ShapeError>(index >= 0 && index < num_micro_batches(),
                    "micro_batch: must be in [0, {}), got {}", num_micro_batches(), index);
  const std::uint64_t first = step * static_cast<std::uint64_t>(options_.global_batch) +
                              static_cast<std::uint64_t>(index * options_.micro_batch);
  return read_batch(*dataset_, first, options_.micro_batch, [this](std::uint64_t sample_number) {
    return sample_index(options_.seed, dataset_->num_samples(), sample_number);
  });
}

Batch sequential_batch(const TokenDataset& dataset, std::uint64_t first, std::int64_t batch) {
  check<ShapeError>(batch >= 0, "sequential_batch: the batch must not be negative, got {}", batch);
  return read_batch(dataset, first, batch, [](std::uint64_t sample) { return sample; });
}

}  // namespace fsdptrain::data
