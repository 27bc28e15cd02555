#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/data/token_dataset.h"

namespace fsdptrain::data {

// A trigram model of bytes: what a model without learning reaches, as a yardstick for training.
// Smoothed by the method C of Witten and Bell, "The zero-frequency problem" (IEEE Transactions
// on Information Theory 37, 1991), interpolated from trigram down to the uniform distribution:
//
//   p(w | h) = (c(h, w) + T(h) p(w | h')) / (c(h) + T(h))
//
// c(h, w) counts w behind the history h, c(h) is its sum over w, T(h) the number of different w
// behind h, and h' is h without its oldest token. Behind the empty history stands 1 / vocab_size;
// a history never seen gives p(w | h').
class TrigramModel {
 public:
  // DataError for a vocabulary above that of bytes.
  TrigramModel(std::uint32_t vocab_size, std::optional<std::uint32_t> end_of_document);

  // Goes on with a text: counts every token that a TokenDataset would predict, all but the very
  // first and those behind an end of document. DataError for a token outside the vocabulary.
  void count(std::span<const std::int64_t> tokens);

  // p(next | before, previous); p(next | previous) where there is nothing before.
  // REQUIRES: tokens below vocab_size.
  double probability(std::optional<std::int64_t> before, std::int64_t previous,
                     std::int64_t next) const;

 private:
  // Counts and distinct successors of histories of one length.
  struct Level {
    std::vector<std::uint64_t> next_counts;  // [history, next]
    std::vector<std::uint64_t> totals;       // [history]
    std::vector<std::uint32_t> distinct;     // [history]

    Level(std::size_t num_histories, std::size_t vocab_size);
    void count(std::size_t history, std::size_t next, std::size_t vocab_size);
    double smooth(std::size_t history, std::size_t next, std::size_t vocab_size,
                  double shorter) const;
  };

  std::size_t vocab_size_;
  std::optional<std::uint32_t> end_of_document_;
  // The last two tokens counted, as far as there are.
  std::optional<std::int64_t> before_;
  std::optional<std::int64_t> previous_;
  Level unigram_;
  Level bigram_;
  Level trigram_;
};

struct TrigramScore {
  double nats_per_target = 0;
  std::uint64_t num_targets = 0;
};

// Trains on `train` and scores exactly the targets that `validation` does not ignore. A history
// may reach back over the start of a window, but not of the range. DataError if there is no
// target.
TrigramScore score_trigram(const TokenSource& source, TokenRange train,
                           const TokenDataset& validation);

}  // namespace fsdptrain::data
