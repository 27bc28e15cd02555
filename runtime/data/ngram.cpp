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

// Calls `fn` with the tokens of a range, in parts of any size.
template <class Fn>
void for_each_part(const TokenSource& source, TokenRange range, const Fn& fn) {
  std::vector<std::int64_t> part(std::size_t{1} << 16);
  for (std::uint64_t begin = range.begin; begin < range.end; begin += part.size()) {
    const auto tokens = std::span(part).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(part.size(), range.end - begin)));
    source.read(begin, tokens);
    fn(tokens);
  }
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

TrigramModel::TrigramModel(std::uint32_t vocab_size, std::optional<std::uint32_t> end_of_document)
    : vocab_size_(checked_vocab_size(vocab_size)),
      end_of_document_(end_of_document),
      unigram_(1, vocab_size_),
      bigram_(vocab_size_, vocab_size_),
      trigram_(vocab_size_ * vocab_size_, vocab_size_) {}

void TrigramModel::count(std::span<const std::int64_t> tokens) {
  const bool fits = std::ranges::all_of(tokens, [&](std::int64_t token) {
    return token >= 0 && token < static_cast<std::int64_t>(vocab_size_);
  });
  check<DataError>(fits, "trigram: every token must be below the vocabulary size {}", vocab_size_);
  for (const std::int64_t token : tokens) {
    const auto next = static_cast<std::size_t>(token);
    if (previous_ && previous_ != end_of_document_) {
      const auto previous = static_cast<std::size_t>(*previous_);
      unigram_.count(0, next, vocab_size_);
      bigram_.count(previous, next, vocab_size_);
      if (before_) {
        trigram_.count(static_cast<std::size_t>(*before_) * vocab_size_ + previous, next,
                       vocab_size_);
      }
    }
    before_ = previous_;
    previous_ = token;
  }
}

double TrigramModel::probability(std::optional<std::int64_t> before, std::int64_t previous,
                                 std::int64_t next) const {
  const auto history = static_cast<std::size_t>(previous);
  const auto token = static_cast<std::size_t>(next);
  const double uniform = 1 / static_cast<double>(vocab_size_);
  const double unigram = unigram_.smooth(0, token, vocab_size_, uniform);
  const double bigram = bigram_.smooth(history, token, vocab_size_, unigram);
  return before ? trigram_.smooth(static_cast<std::size_t>(*before) * vocab_size_ + history, token,
                                  vocab_size_, bigram)
                : bigram;
}

TrigramScore score_trigram(const TokenSource& source, TokenRange train,
                           const TokenDataset& validation) {
  const std::optional<std::uint32_t> end_of_document = source.vocabulary().end_of_document;
  TrigramModel model(source.vocabulary().size, end_of_document);
  for_each_part(source, train, [&](std::span<const std::int64_t> tokens) { model.count(tokens); });

  const std::uint64_t begin = validation.range().begin;
  const std::uint64_t end =
      begin + validation.num_samples() * static_cast<std::uint64_t>(validation.seq_len()) + 1;
  TrigramScore score;
  double nats = 0;
  std::optional<std::int64_t> before;
  std::optional<std::int64_t> previous;
  for_each_part(validation.source(), {begin, end}, [&](std::span<const std::int64_t> tokens) {
    for (const std::int64_t token : tokens) {
      if (previous && previous != end_of_document) {
        nats -= std::log(model.probability(before, *previous, token));
        ++score.num_targets;
      }
      before = previous;
      previous = token;
    }
  });
  check<DataError>(score.num_targets > 0, "{}: tokens [{}, {}) have no target to score",
                   validation.source().name(), begin, end);
  score.nats_per_target = nats / static_cast<double>(score.num_targets);
  return score;
}

}  // namespace fsdptrain::data
