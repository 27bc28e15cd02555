#include "runtime/data/loader.h"

#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/permutation.h"

namespace fsdptrain::data {
namespace {

Batch empty_batch(std::uint64_t first_sample, std::int64_t batch, std::int64_t seq_len) {
  const auto size = static_cast<std::size_t>(batch) * static_cast<std::size_t>(seq_len);
  Batch out;
  out.batch = batch;
  out.seq_len = seq_len;
  out.first_sample = first_sample;
  for (auto* values : {&out.tokens, &out.targets, &out.positions, &out.document_ids}) {
    values->resize(size);
  }
  return out;
}

void read_row(Batch& batch, std::size_t row, const TokenDataset& dataset, std::uint64_t sample) {
  const auto length = static_cast<std::size_t>(batch.seq_len);
  const auto of = [&](std::vector<std::int64_t>& values) {
    return std::span(values).subspan(row * length, length);
  };
  batch.num_targets += dataset.read(sample, {.tokens = of(batch.tokens),
                                             .targets = of(batch.targets),
                                             .positions = of(batch.positions),
                                             .document_ids = of(batch.document_ids)});
}

Mixture mixture_of(const std::vector<WeightedDataset>& sources, std::uint64_t seed) {
  check<ConfigError>(!sources.empty(), "loader: needs a source, got none");
  std::vector<double> weights;
  const TokenDataset& first = *sources.front().dataset;
  for (const WeightedDataset& source : sources) {
    const TokenDataset& dataset = *source.dataset;
    check_same_vocabulary(first.source().name(), first.source().vocabulary(),
                          dataset.source().name(), dataset.source().vocabulary());
    check<ConfigError>(dataset.seq_len() == first.seq_len(),
                       "loader: all sources must have one seq_len, got {} and {}", first.seq_len(),
                       dataset.seq_len());
    weights.push_back(source.weight);
  }
  return {weights, seed};
}

}  // namespace

Loader::Loader(std::vector<WeightedDataset> sources, const Options& options)
    : sources_(std::move(sources)),
      options_(options),
      mixture_(mixture_of(sources_, options.seed)) {
  check<ConfigError>(options.micro_batch >= 1 && options.global_batch >= 1 &&
                         options.global_batch % options.micro_batch == 0,
                     "loader: global_batch must be a multiple of micro_batch, got {} and {}",
                     options.global_batch, options.micro_batch);
}

Batch Loader::micro_batch(std::uint64_t step, std::int64_t index) const {
  check<ShapeError>(index >= 0 && index < num_micro_batches(),
                    "micro_batch: must be in [0, {}), got {}", num_micro_batches(), index);
  const std::uint64_t first = options_.first_sample +
                              step * static_cast<std::uint64_t>(options_.global_batch) +
                              static_cast<std::uint64_t>(index * options_.micro_batch);
  Batch batch = empty_batch(first, options_.micro_batch, sources_.front().dataset->seq_len());
  for (std::size_t row = 0; row < static_cast<std::size_t>(batch.batch); ++row) {
    const Sample from = sample(first + row);
    read_row(batch, row, *sources_[from.source].dataset, from.window);
  }
  return batch;
}

Loader::Sample Loader::sample(std::uint64_t number) const {
  const Mixture::Place place = mixture_(number);
  const std::uint64_t size = sources_[place.source].dataset->num_samples();
  const std::uint64_t epoch = place.number / size;
  const Permutation order(size, {.seed = options_.seed, .stream = place.source, .epoch = epoch});
  return {place.source, epoch, order(place.number % size)};
}

Batch sequential_batch(const TokenDataset& dataset, std::uint64_t first, std::int64_t batch) {
  check<ShapeError>(batch >= 0, "sequential_batch: the batch must not be negative, got {}", batch);
  Batch out = empty_batch(first, batch, dataset.seq_len());
  for (std::size_t row = 0; row < static_cast<std::size_t>(batch); ++row) {
    read_row(out, row, dataset, first + row);
  }
  return out;
}

}  // namespace fsdptrain::data
