#include "runtime/data/ngram.h"

#include <cmath>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/data/loader.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"

namespace fsdptrain::data {
namespace {

using testing::make_token_file;
using testing::TemporaryFolder;

TEST_SUITE_BEGIN("runtime/data/ngram");

TEST_CASE("probabilities are those computed by hand") {
  // Counted: b a b c behind a; no token ends a document. a = 0, b = 1, c = 2.
  TrigramModel model(3, std::nullopt);
  // In two parts, which make no difference.
  model.count(std::vector<std::int64_t>{0, 1, 0});
  model.count(std::vector<std::int64_t>{1, 2});
  // Unigrams a 1, b 2, c 1: (count + 3 / 3) / (4 + 3).
  const double a = 2.0 / 7;
  const double b = 3.0 / 7;
  const double c = 2.0 / 7;
  CHECK(a + b + c == doctest::Approx(1));
  // Behind a: b twice. Behind b: a, c once each. Behind c: nothing.
  CHECK(model.probability({}, 0, 1) == doctest::Approx((2 + b) / 3));
  CHECK(model.probability({}, 0, 0) == doctest::Approx(a / 3));
  CHECK(model.probability({}, 1, 2) == doctest::Approx((1 + 2 * c) / 4));
  CHECK(model.probability({}, 2, 1) == doctest::Approx(b));
  // Behind ab: a, c once each. Behind ba: b once. Behind bc: nothing.
  CHECK(model.probability(0, 1, 0) == doctest::Approx((1 + 2 * (1 + 2 * a) / 4) / 4));
  CHECK(model.probability(1, 0, 1) == doctest::Approx((1 + (2 + b) / 3) / 2));
  CHECK(model.probability(1, 0, 2) == doctest::Approx(c / 3 / 2));
  CHECK(model.probability(1, 2, 0) == doctest::Approx(a));
}

TEST_CASE("probabilities behind any history sum to one") {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < 2000; ++i) {
    tokens.push_back(i * i % 101 % 13);
  }
  TrigramModel model(17, 12);
  model.count(tokens);
  for (std::int64_t before = 0; before <= 17; ++before) {
    for (std::int64_t previous = 0; previous < 17; ++previous) {
      double sum = 0;
      for (std::int64_t next = 0; next < 17; ++next) {
        const auto history = before < 17 ? std::optional<std::int64_t>(before) : std::nullopt;
        const double p = model.probability(history, previous, next);
        CHECK(p > 0);
        sum += p;
      }
      CHECK(sum == doctest::Approx(1).epsilon(1e-12));
    }
  }
}

TEST_CASE("the score covers exactly the targets of the dataset") {
  const TemporaryFolder folder;
  // Training 0 1 0 1 2; validation 1 0 2 0 1, of which 2 ends a document.
  const auto file = make_token_file(folder / "t", {0, 1, 0, 1, 2, 1, 0, 2, 0, 1}, 3, 2);
  const TokenDataset validation(file, 2, {5, 10});
  const TrigramScore score = score_trigram(*file, {0, 5}, validation);
  std::int64_t num_targets = 0;
  for (std::uint64_t sample = 0; sample < validation.num_samples(); ++sample) {
    num_targets += sequential_batch(validation, sample, 1).num_targets;
  }
  CHECK(num_targets == 3);
  CHECK(score.num_targets == 3);
  TrigramModel model(3, 2);
  model.count(std::vector<std::int64_t>{0, 1, 0, 1, 2});
  const double nats = -std::log(model.probability({}, 1, 0)) -
                      std::log(model.probability(1, 0, 2)) - std::log(model.probability(2, 0, 1));
  CHECK(score.nats_per_target == doctest::Approx(nats / 3));
}

TEST_CASE("what it cannot model is refused") {
  CHECK_THROWS_WITH_AS(TrigramModel(258, std::nullopt), doctest::Contains("got 258"), DataError);
  TrigramModel model(3, std::nullopt);
  for (const std::int64_t token : {3, -1}) {
    CHECK_THROWS_WITH_AS(model.count(std::vector<std::int64_t>{0, token}),
                         doctest::Contains("below the vocabulary size 3"), DataError);
  }
  const TemporaryFolder folder;
  const auto file = make_token_file(folder / "t", {0, 1, 2, 2}, 3, 2);
  CHECK_THROWS_WITH_AS(score_trigram(*file, {0, 2}, TokenDataset(file, 1, {2, 4})),
                       doctest::Contains("no target"), DataError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
