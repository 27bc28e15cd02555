#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/data/token_file.h"

namespace fsdptrain::data {

// Tokens [begin, end) of a token file.
struct TokenRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t size() const { return end - begin; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

struct TokenSplit {
  TokenRange train;
  TokenRange validation;
};

// Validation is the last floor(num_tokens * validation_fraction) tokens, training all before;
// ConfigError unless the fraction is in [0, 1).
TokenSplit split_tokens(std::uint64_t num_tokens, double validation_fraction);

// The sequences of one range of a token file. Sample i is the window of seq_len + 1 tokens at
// begin + i * seq_len: its first seq_len are the inputs, its last seq_len the targets, so that
// each token of the range but the first is a target once, but for an incomplete window at the
// end. No prediction crosses a document: the target of an end-of-document input is ignored.
class TokenDataset {
 public:
  // ConfigError for a seq_len below 1; DataError if the range holds no whole window.
  TokenDataset(std::shared_ptr<const TokenFile> file, std::int64_t seq_len, TokenRange range);

  const TokenFile& file() const { return *file_; }
  std::int64_t seq_len() const { return seq_len_; }
  TokenRange range() const { return range_; }
  std::uint64_t num_samples() const { return num_samples_; }

  // Writes one sample, seq_len values each; returns the number of targets not ignored.
  std::int64_t read(std::uint64_t sample, std::span<std::int64_t> inputs,
                    std::span<std::int64_t> targets) const;

 private:
  std::shared_ptr<const TokenFile> file_;
  std::int64_t seq_len_;
  TokenRange range_;
  std::uint64_t num_samples_;
};

}  // namespace fsdptrain::data
