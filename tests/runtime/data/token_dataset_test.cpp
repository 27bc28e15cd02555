#include "runtime/data/token_dataset.h"

#include <algorithm>
#include <numeric>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/ignored_target.h"
#include "runtime/base/random.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"

namespace fsdptrain::data {
namespace {

using testing::make_token_file;
using testing::TemporaryFolder;
using testing::write_tokens;

TEST_SUITE_BEGIN("runtime/data/token_dataset");

std::vector<std::uint16_t> counting_tokens(std::size_t num_tokens) {
  std::vector<std::uint16_t> tokens(num_tokens);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{0});
  return tokens;
}

// One sample and where it is kept.
struct Sample {
  explicit Sample(std::int64_t seq_len) {
    for (auto* values : {&tokens, &targets, &positions, &document_ids}) {
      values->resize(static_cast<std::size_t>(seq_len));
    }
  }

  SampleRow row() { return {tokens, targets, positions, document_ids}; }

  std::vector<std::int64_t> tokens, targets, positions, document_ids;
};

TEST_CASE("every token of the range but the first is a target once") {
  const TemporaryFolder folder;
  const auto file = make_token_file(folder / "t", counting_tokens(100), 100);
  for (const std::int64_t seq_len : {1, 2, 7, 89}) {
    CAPTURE(seq_len);
    const TokenDataset dataset(file, seq_len, {10, 100});
    CHECK(dataset.num_samples() == static_cast<std::uint64_t>(89 / seq_len));
    std::int64_t expected = 10;
    Sample read(seq_len);
    for (std::uint64_t sample = 0; sample < dataset.num_samples(); ++sample) {
      CHECK(dataset.read(sample, read.row()) == seq_len);
      for (std::size_t position = 0; position < read.tokens.size(); ++position) {
        CHECK(read.tokens[position] == expected);
        CHECK(read.targets[position] == ++expected);
      }
    }
    CHECK_THROWS_WITH_AS(dataset.read(dataset.num_samples(), read.row()),
                         doctest::Contains("sample: must be below"), ShapeError);
  }
}

TEST_CASE("the target behind an end of document is ignored, the end itself is a target") {
  const TemporaryFolder folder;
  const auto file = make_token_file(folder / "t", {1, 9, 2, 3, 9, 9, 4}, 10, 9);
  const TokenDataset dataset(file, 3, {0, 7});
  Sample sample(3);
  CHECK(dataset.read(0, sample.row()) == 2);
  CHECK(sample.tokens == std::vector<std::int64_t>{1, 9, 2});
  CHECK(sample.targets == std::vector<std::int64_t>{9, kIgnoredTarget, 3});
  CHECK(dataset.read(1, sample.row()) == 1);
  CHECK(sample.tokens == std::vector<std::int64_t>{3, 9, 9});
  CHECK(sample.targets == std::vector<std::int64_t>{9, kIgnoredTarget, kIgnoredTarget});
}

TEST_CASE("positions start anew with each document, and ids count them") {
  const TemporaryFolder folder;
  const auto file = make_token_file(folder / "t", {1, 9, 2, 3, 9, 9, 4, 5, 6}, 10, 9);
  Sample sample(8);
  CHECK(TokenDataset(file, 8, {0, 9}).read(0, sample.row()) == 5);
  CHECK(sample.positions == std::vector<std::int64_t>{0, 1, 0, 1, 2, 0, 0, 1});
  CHECK(sample.document_ids == std::vector<std::int64_t>{0, 0, 1, 1, 1, 2, 3, 3});
  const std::vector<std::int64_t> targets = sample.targets;
  CHECK(TokenDataset(file, 8, {0, 9}, false).read(0, sample.row()) == 5);
  CHECK(sample.positions == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(sample.document_ids == std::vector<std::int64_t>(8, 0));
  CHECK(sample.targets == targets);
}

TEST_CASE("rows are those of a naive scan, for random documents in any shards") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const TemporaryFolder folder;
    std::vector<std::int64_t> tokens(997);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Philox random = philox(i, seed, 3);
      tokens[i] = random.word[0] % (2 + seed) == 0 ? 70'000 : random.word[1] % 70'000;
    }
    write_tokens({folder / "set", {70'001, 70'000, "test"}, 97 + 37 * seed}, tokens);
    const auto source = std::make_shared<TokenSource>(folder.path());
    const auto length = static_cast<std::int64_t>(1 + seed * 5);
    const TokenDataset dataset(source, length, {3, 990});
    Sample sample(length);
    for (std::uint64_t window = 0; window < dataset.num_samples(); ++window) {
      std::int64_t num_targets = 0;
      const std::int64_t begin = 3 + static_cast<std::int64_t>(window) * length;
      const std::int64_t read = dataset.read(window, sample.row());
      for (std::int64_t i = 0; i < length; ++i) {
        // The start of the document: behind the nearest end before it, or the window's.
        std::int64_t start = begin + i;
        while (start > begin && tokens[static_cast<std::size_t>(start - 1)] != 70'000) {
          --start;
        }
        const auto at = static_cast<std::size_t>(begin + i);
        const auto place = static_cast<std::size_t>(i);
        const bool is_end = tokens[at] == 70'000;
        num_targets += is_end ? 0 : 1;
        REQUIRE(sample.tokens[place] == tokens[at]);
        REQUIRE(sample.targets[place] == (is_end ? kIgnoredTarget : tokens[at + 1]));
        REQUIRE(sample.positions[place] == begin + i - start);
        REQUIRE(sample.document_ids[place] ==
                std::count(tokens.begin() + begin, tokens.begin() + begin + i, 70'000));
      }
      CHECK(read == num_targets);
    }
  }
}

TEST_CASE("a text shorter than one sequence is refused with both lengths") {
  const TemporaryFolder folder;
  const auto file = make_token_file(folder / "t", counting_tokens(8), 8);
  CHECK(TokenDataset(file, 7, {0, 8}).num_samples() == 1);
  CHECK_THROWS_WITH_AS(
      TokenDataset(file, 8, {0, 8}),
      doctest::Contains("the 8 tokens [0, 8) are fewer than one sequence of seq_len + 1 = 9"),
      DataError);
  CHECK_THROWS_AS(TokenDataset(file, 1, {8, 8}), DataError);
  CHECK_THROWS_AS(TokenDataset(file, 1, {0, 9}), ShapeError);
  CHECK_THROWS_WITH_AS(TokenDataset(file, 0, {0, 8}), doctest::Contains("seq_len: must be"),
                       ConfigError);
}

TEST_CASE("validation is the last part and the parts do not overlap") {
  const TokenSplit split = split_tokens(1009, 0.1);
  CHECK(split.train == TokenRange{0, 909});
  CHECK(split.validation == TokenRange{909, 1009});
  CHECK(split_tokens(10, 0).validation.size() == 0);
  CHECK(split_tokens(0, 0.5).train.size() == 0);
  CHECK_THROWS_WITH_AS(split_tokens(10, 1), doctest::Contains("must be in [0, 1), got 1"),
                       ConfigError);
  CHECK_THROWS_AS(split_tokens(10, -0.1), ConfigError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
