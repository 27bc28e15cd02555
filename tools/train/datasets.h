#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/loader.h"
#include "runtime/data/token_dataset.h"
#include "tools/config/config.h"

namespace fsdptrain::tools {

// A file of tokens that a run reads.
struct DataFile {
  std::string path;
  std::uint64_t nbytes = 0;
  std::uint64_t num_tokens = 0;
  // Text that is another where the content is another; empty: not taken.
  std::string fingerprint;
};

// The tokens of a run, as [data] says.
struct Datasets {
  // One for each of data.tokens.
  std::vector<data::WeightedDataset> training;
  // Held back from training: the ends of data.tokens, or data.validation. May be empty.
  std::vector<std::shared_ptr<const data::TokenDataset>> validation;

  // Of all sources, training and validation alike.
  const data::Vocabulary& vocabulary() const;
  std::uint64_t num_training_tokens() const;
  std::uint64_t num_validation_tokens() const;
  // Each source once.
  std::vector<const data::TokenSource*> sources() const;
  // Of all sources: as they are open, which a file of the same name that comes later does not
  // replace.
  std::vector<DataFile> files() const;
};

// Opens all files; nothing is read but headers. DataError for a file that is wrong, ConfigError
// where the tokens do not fit the model, or data.weights the sources.
Datasets open_datasets(const Config& config);

// Where a run goes on: behind so many steps, which have taken so many samples.
struct DataPosition {
  std::int64_t step = 0;
  std::int64_t samples = 0;
};

// The order in which training sees them. ConfigError, naming data.weights, for weights that leave a
// source no sample.
data::Loader make_loader(const Config& config, const Datasets& datasets,
                         const DataPosition& position = {});

// What open_datasets() would validate on if data.validation were `sources`: for an evaluation on
// tokens of its own.
std::vector<std::shared_ptr<const data::TokenDataset>> open_validation(
    const Config& config, const std::vector<std::string>& sources);

}  // namespace fsdptrain::tools
