#include "runtime/data/token_dataset.h"

#include <numeric>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/ignored_target.h"
#include "tests/runtime/data/token_fixture.h"

namespace fsdptrain::data {
namespace {

TEST_SUITE_BEGIN("runtime/data/token_dataset");

std::vector<std::uint16_t> counting_tokens(std::size_t num_tokens) {
  std::vector<std::uint16_t> tokens(num_tokens);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{0});
  return tokens;
}

TEST_CASE("every token of the range but the first is a target once") {
  const TemporaryFolder folder;
  const auto file = make_token_file(folder / "t", counting_tokens(100), 100);
  for (const std::int64_t seq_len : {1, 2, 7, 89}) {
    CAPTURE(seq_len);
    const TokenDataset dataset(file, seq_len, {10, 100});
    CHECK(dataset.num_samples() == static_cast<std::uint64_t>(89 / seq_len));
    std::int64_t expected = 10;
    std::vector<std::int64_t> inputs(static_cast<std::size_t>(seq_len));
    std::vector<std::int64_t> targets(inputs.size());
    for (std::uint64_t sample = 0; sample < dataset.num_samples(); ++sample) {
      CHECK(dataset.read(sample, inputs, targets) == seq_len);
      for (std::size_t position = 0; position < inputs.size(); ++position) {
        CHECK(inputs[position] == expected);
        CHECK(targets[position] == ++expected);
      }
    }
    CHECK_THROWS_WITH_AS(dataset.read(dataset.num_samples(), inputs, targets),
                         doctest::Contains("sample: must be below"), ShapeError);
  }
}

TEST_CASE("the target behind an end of document is ignored, the end itself is a target") {
  const TemporaryFolder folder;
  const auto file = make_token_file(folder / "t", {1, 9, 2, 3, 9, 9, 4}, 10, 9);
  const TokenDataset dataset(file, 3, {0, 7});
  std::vector<std::int64_t> inputs(3);
  std::vector<std::int64_t> targets(3);
  CHECK(dataset.read(0, inputs, targets) == 2);
  CHECK(inputs == std::vector<std::int64_t>{1, 9, 2});
  CHECK(targets == std::vector<std::int64_t>{9, kIgnoredTarget, 3});
  CHECK(dataset.read(1, inputs, targets) == 1);
  CHECK(inputs == std::vector<std::int64_t>{3, 9, 9});
  CHECK(targets == std::vector<std::int64_t>{9, kIgnoredTarget, kIgnoredTarget});
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
