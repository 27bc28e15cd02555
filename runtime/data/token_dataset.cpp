#include "runtime/data/token_dataset.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/ignored_target.h"

namespace fsdptrain::data {
namespace {

// Equal to no token.
constexpr std::int64_t kNoEnd = -1;

std::uint64_t checked_length(const TokenSource& source, std::int64_t seq_len, TokenRange range) {
  check<ConfigError>(seq_len >= 1, "seq_len: must be at least 1, got {}", seq_len);
  check<ShapeError>(range.begin <= range.end && range.end <= source.num_tokens(),
                    "{}: tokens [{}, {}) are not within its {} tokens", source.name(), range.begin,
                    range.end, source.num_tokens());
  const auto length = static_cast<std::uint64_t>(seq_len);
  check<DataError>(range.size() > length,
                   "{}: the {} tokens [{}, {}) are fewer than one sequence of seq_len + 1 = {}: "
                   "give more text, a smaller seq_len or another validation fraction",
                   source.name(), range.size(), range.begin, range.end, length + 1);
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

TokenDataset::TokenDataset(std::shared_ptr<const TokenSource> source, std::int64_t seq_len,
                           TokenRange range, bool split_documents)
    : source_(std::move(source)),
      seq_len_(seq_len),
      range_(range),
      split_documents_(split_documents),
      num_samples_((range.size() - 1) / checked_length(*source_, seq_len, range)) {}

std::int64_t TokenDataset::read(std::uint64_t sample, const SampleRow& row) const {
  const auto length = static_cast<std::size_t>(seq_len_);
  check<ShapeError>(sample < num_samples_, "sample: must be below {}, got {}", num_samples_,
                    sample);
  check<ShapeError>(row.tokens.size() == length && row.targets.size() == length &&
                        row.positions.size() == length && row.document_ids.size() == length,
                    "sample: a row must hold {} values of each kind, got {} tokens, {} targets, {} "
                    "positions and {} document ids",
                    length, row.tokens.size(), row.targets.size(), row.positions.size(),
                    row.document_ids.size());
  const std::uint64_t begin = range_.begin + sample * length;
  source_->read(begin, row.tokens);
  std::ranges::copy(row.tokens.subspan(1), row.targets.begin());
  source_->read(begin + length, row.targets.last(1));

  const std::int64_t end = source_->vocabulary().end_of_document
                               ? std::int64_t{*source_->vocabulary().end_of_document}
                               : kNoEnd;
  std::int64_t num_targets = 0;
  std::int64_t position = 0;
  std::int64_t document = 0;
  for (std::size_t i = 0; i < length; ++i) {
    row.positions[i] = position++;
    row.document_ids[i] = document;
    if (row.tokens[i] != end) {
      ++num_targets;
      continue;
    }
    row.targets[i] = kIgnoredTarget;
    if (split_documents_) {
      position = 0;
      ++document;
    }
  }
  return num_targets;
}

}  // namespace fsdptrain::data
