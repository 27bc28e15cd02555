#include "tools/train/datasets.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/fingerprint.h"

namespace fsdptrain::tools {
namespace {

std::shared_ptr<const data::TokenSource> open_source(const Config& config,
                                                     const std::string& path) {
  auto source = std::make_shared<const data::TokenSource>(path);
  check<ConfigError>(source->vocabulary().size <= config.model.vocab_size,
                     "model.vocab_size: {} is less than the {} of {}: set it to that",
                     config.model.vocab_size, source->vocabulary().size, path);
  return source;
}

std::shared_ptr<const data::TokenDataset> make_dataset(
    const Config& config, std::shared_ptr<const data::TokenSource> source, data::TokenRange range) {
  return std::make_shared<const data::TokenDataset>(std::move(source), config.train.seq_len, range,
                                                    config.data.mask_documents);
}

// As written in data.weights, else in proportion to the training tokens.
double weight_of(const Config& config, std::size_t source, std::uint64_t num_tokens) {
  return config.data.weights.empty() ? static_cast<double>(num_tokens)
                                     : config.data.weights[source];
}

}  // namespace

const data::Vocabulary& Datasets::vocabulary() const {
  return training.front().dataset->source().vocabulary();
}

std::uint64_t Datasets::num_training_tokens() const {
  std::uint64_t num_tokens = 0;
  for (const data::WeightedDataset& source : training) {
    num_tokens += source.dataset->range().size();
  }
  return num_tokens;
}

std::uint64_t Datasets::num_validation_tokens() const {
  std::uint64_t num_tokens = 0;
  for (const auto& dataset : validation) {
    num_tokens += dataset->range().size();
  }
  return num_tokens;
}

std::vector<const data::TokenSource*> Datasets::sources() const {
  std::vector<const data::TokenSource*> sources;
  const auto add = [&sources](const data::TokenDataset& dataset) {
    if (std::ranges::find(sources, &dataset.source()) == sources.end()) {
      sources.push_back(&dataset.source());
    }
  };
  for (const data::WeightedDataset& source : training) {
    add(*source.dataset);
  }
  for (const auto& dataset : validation) {
    add(*dataset);
  }
  return sources;
}

std::vector<DataFile> Datasets::files() const {
  std::vector<DataFile> files;
  for (const data::TokenSource* source : sources()) {
    for (const auto& file : source->files()) {
      const File bytes = file->open();
      files.push_back({.path = file->path().string(),
                       .nbytes = bytes.size(),
                       .num_tokens = file->num_tokens(),
                       .fingerprint = data::to_string(data::sampled_fingerprint(bytes))});
    }
  }
  return files;
}

Datasets open_datasets(const Config& config) {
  Datasets datasets;
  const bool apart = !config.data.validation.empty();
  for (std::size_t index = 0; index < config.data.tokens.size(); ++index) {
    const auto source = open_source(config, config.data.tokens[index]);
    source->advise_random();
    const data::TokenSplit split =
        data::split_tokens(source->num_tokens(), apart ? 0 : config.data.validation_fraction);
    datasets.training.push_back({.dataset = make_dataset(config, source, split.train),
                                 .weight = weight_of(config, index, split.train.size())});
    if (split.validation.size() > 0) {
      datasets.validation.push_back(make_dataset(config, source, split.validation));
    }
  }
  if (apart) {
    datasets.validation = open_validation(config, config.data.validation);
    for (const auto& dataset : datasets.validation) {
      data::check_same_vocabulary(datasets.training.front().dataset->source().name(),
                                  datasets.vocabulary(), dataset->source().name(),
                                  dataset->source().vocabulary());
    }
  }
  return datasets;
}

data::Loader make_loader(const Config& config, const Datasets& datasets,
                         const DataPosition& position) {
  const std::int64_t regular = position.step * config.train.global_batch;
  try {
    return {datasets.training,
            {.seed = static_cast<std::uint64_t>(config.run.seed),
             .global_batch = config.train.global_batch,
             .micro_batch = config.train.micro_batch,
             .first_sample = static_cast<std::uint64_t>(position.samples - regular)}};
  } catch (ConfigError& error) {
    error.add_context(config.data.weights.empty()
                          ? "data.weights is not given, so sources count by their tokens"
                          : "data.weights");
    throw;
  }
}

std::vector<std::shared_ptr<const data::TokenDataset>> open_validation(
    const Config& config, const std::vector<std::string>& sources) {
  std::vector<std::shared_ptr<const data::TokenDataset>> datasets;
  for (const std::string& path : sources) {
    const auto source = open_source(config, path);
    datasets.push_back(make_dataset(config, source, {0, source->num_tokens()}));
  }
  return datasets;
}

}  // namespace fsdptrain::tools
