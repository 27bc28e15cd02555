#include "runtime/data/token_dataset.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/ignored_target.h"

namespace fsdptrain::data {
namespace {

std::uint64_t checked_length(const TokenFile& file, std::int64_t seq_len, TokenRange range) {
  check<ConfigError>(seq_len >= 1, "seq_len: must be at least 1, got {}", seq_len);
  check<ShapeError>(range.begin <= range.end && range.end <= file.num_tokens(),
                    "{}: tokens [{}, {}) are not within its {} tokens", file.path().native(),
                    range.begin, range.end, file.num_tokens());
  const auto length = static_cast<std::uint64_t>(seq_len);
  check<DataError>(range.size() > length,
                   "{}: the {} tokens [{}, {}) are fewer than one sequence of seq_len + 1 = {}: "
                   "give more text, a smaller seq_len or another validation fraction",
                   file.path().native(), range.size(), range.begin, range.end, length + 1);
  return length;
}

}  // namespace

TokenSplit split_tokens(std::uint64_t num_tokens, double validation_fraction) {
  check<ConfigError>(validation_fraction >= 0 && validation_fraction < 1,
                     "validation_fraction: must be in [0, 1), got {}", validation_fraction);
  const auto num_validation =
      static_cast<std::uint64_t>(static_cast<double>(num_tokens) * validation_fraction);
  const std::uint64_t boundary = num_tokens - std::min(num_validation, num_tokens);
  return {{0, boundary}, {boundary, num_tokens}};
}

TokenDataset::TokenDataset(std::shared_ptr<const TokenFile> file, std::int64_t seq_len,
                           TokenRange range)
    : file_(std::move(file)),
      seq_len_(seq_len),
      range_(range),
      num_samples_((range.size() - 1) / checked_length(*file_, seq_len, range)) {}

std::int64_t TokenDataset::read(std::uint64_t sample, std::span<std::int64_t> inputs,
                                std::span<std::int64_t> targets) const {
  const auto length = static_cast<std::size_t>(seq_len_);
  check<ShapeError>(sample < num_samples_, "sample: must be below {}, got {}", num_samples_,
                    sample);
  check<ShapeError>(inputs.size() == length && targets.size() == length,
                    "sample: inputs and targets must hold {} values, got {} and {}", length,
                    inputs.size(), targets.size());
  const std::uint64_t begin = range_.begin + sample * length;
  file_->read(begin, inputs);
  file_->read(begin + 1, targets);
  if (!file_->header().end_of_document) {
    return seq_len_;
  }
  const std::int64_t end_of_document = *file_->header().end_of_document;
  std::int64_t num_targets = 0;
  for (std::size_t position = 0; position < length; ++position) {
    if (inputs[position] == end_of_document) {
      targets[position] = kIgnoredTarget;
    } else {
      ++num_targets;
    }
  }
  return num_targets;
}

}  // namespace fsdptrain::data
