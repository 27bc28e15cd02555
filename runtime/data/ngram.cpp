#include "runtime/data/ngram.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/data/byte_text.h"

namespace fsdptrain::data {
namespace {

std::size_t checked_vocab_size(std::uint32_t vocab_size) {
  check<DataError>(vocab_size >= 1 && vocab_size <= kByteVocabSize,
                   "trigram: the vocabulary must be that of bytes, at most {} tokens, got {}",
                   kByteVocabSize, vocab_size);
  return vocab_size;
}

}  // namespace

TrigramModel::Level::Level(std::size_t num_histories, std::size_t vocab_size)
    : next_counts(num_histories * vocab_size), totals(num_histories), distinct(num_histories) {}

void TrigramModel::Level::count(std::size_t history, std::size_t next, std::size_t vocab_size) {
  if (next_counts[history * vocab_size + next]++ == 0) {
    ++distinct[history];
  }
  ++totals[history];
}

double TrigramModel::Level::smooth(std::size_t history, std::size_t next, std::size_t vocab_size,
                                   double shorter) const {
  if (totals[history] == 0) {
    return shorter;
  }
  const double different = distinct[history];
  return (static_cast<double>(next_counts[history * vocab_size + next]) + different * shorter) /
         (static_cast<double>(totals[history]) + different);
}

TrigramModel::TrigramModel(std::span<const std::uint16_t> tokens, std::uint32_t vocab_size,
                           std::optional<std::uint32_t> end_of_document)
    : vocab_size_(checked_vocab_size(vocab_size)),
      unigram_(1, vocab_size_),
      bigram_(vocab_size_, vocab_size_),
      trigram_(vocab_size_ * vocab_size_, vocab_size_) {
  const bool fits = std::ranges::all_of(tokens, [&](std::size_t t) { return t < vocab_size_; });
  check<DataError>(fits, "trigram: every token must be below the vocabulary size {}", vocab_size);
  for (std::size_t position = 1; position < tokens.size(); ++position) {
    const std::size_t previous = tokens[position - 1];
    const std::size_t next = tokens[position];
    if (end_of_document && previous == *end_of_document) {
      continue;
    }
    unigram_.count(0, next, vocab_size_);
    bigram_.count(previous, next, vocab_size_);
    if (position >= 2) {
      trigram_.count(tokens[position - 2] * vocab_size_ + previous, next, vocab_size_);
    }
  }
}

double TrigramModel::probability(std::optional<std::uint16_t> before, std::uint16_t previous,
                                 std::uint16_t next) const {
  const double uniform = 1 / static_cast<double>(vocab_size_);
  const double unigram = unigram_.smooth(0, next, vocab_size_, uniform);
  const double bigram = bigram_.smooth(previous, next, vocab_size_, unigram);
  return before ? trigram_.smooth(*before * vocab_size_ + previous, next, vocab_size_, bigram)
                : bigram;
}

TrigramScore score_trigram(const TokenFile& file, TokenRange train,
                           const TokenDataset& validation) {
  const std::optional<std::uint32_t> end_of_document = file.header().end_of_document;
  const TrigramModel model(file.checked_tokens(train.begin, train.end), file.header().vocab_size,
                           end_of_document);
  const std::uint64_t begin = validation.range().begin;
  const std::uint64_t last =
      validation.num_samples() * static_cast<std::uint64_t>(validation.seq_len());
  const auto tokens = validation.file().checked_tokens(begin, begin + last + 1);
  TrigramScore score;
  double nats = 0;
  for (std::size_t position = 1; position <= last; ++position) {
    if (end_of_document && tokens[position - 1] == *end_of_document) {
      continue;
    }
    const auto before =
        position >= 2 ? std::optional<std::uint16_t>(tokens[position - 2]) : std::nullopt;
    nats -= std::log(model.probability(before, tokens[position - 1], tokens[position]));
    ++score.num_targets;
  }
  check<DataError>(score.num_targets > 0, "{}: tokens [{}, {}) have no target to score",
                   file.path().native(), begin, begin + last + 1);
  score.nats_per_target = nats / static_cast<double>(score.num_targets);
  return score;
}

}  // namespace fsdptrain::data
