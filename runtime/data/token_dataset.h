#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/data/token_source.h"

namespace fsdptrain::data {

// Tokens [begin, end) of a token source.
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

// Where one sample is written: seq_len values each.
struct SampleRow {
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> targets;
  std::span<std::int64_t> positions;
  std::span<std::int64_t> document_ids;
};

// The sequences of one range of a token source. Sample i is the window of seq_len + 1 tokens at
// begin + i * seq_len: its first seq_len are the inputs, its last seq_len the targets, so that
// each token of the range but the first is a target once, but for an incomplete window at the
// end. No prediction crosses a document: the target of an end-of-document input is ignored.
//
// positions count the inputs within their document, from 0 on; a document that began before the
// window counts from the window's start. document_ids number the documents of the window from 0
// on. Without `split_documents` the window is one document to both.
class TokenDataset {
 public:
  // ConfigError for a seq_len below 1; DataError if the range holds no whole window.
  TokenDataset(std::shared_ptr<const TokenSource> source, std::int64_t seq_len, TokenRange range,
               bool split_documents = true);

  const TokenSource& source() const { return *source_; }
  std::int64_t seq_len() const { return seq_len_; }
  TokenRange range() const { return range_; }
  std::uint64_t num_samples() const { return num_samples_; }

  // Writes one sample; returns the number of targets not ignored.
  std::int64_t read(std::uint64_t sample, const SampleRow& row) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  std::int64_t seq_len_;
  TokenRange range_;
  bool split_documents_;
  std::uint64_t num_samples_;
};

}  // namespace fsdptrain::data
