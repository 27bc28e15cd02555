#include "runtime/data/loader.h"

#include <algorithm>
#include <numeric>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/data/permutation.h"
#include "tests/runtime/data/token_fixture.h"

namespace fsdptrain::data {
namespace {

TEST_SUITE_BEGIN("runtime/data/loader");

// 20 samples of 4 tokens; the first token of sample i is 4 i.
std::shared_ptr<const TokenDataset> counting_dataset(const TemporaryFolder& folder) {
  std::vector<std::uint16_t> tokens(81);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{0});
  return std::make_shared<TokenDataset>(make_token_file(folder / "t", tokens, 81), 4,
                                        TokenRange{0, 81});
}

std::vector<std::int64_t> samples_of(const Batch& batch) {
  std::vector<std::int64_t> samples;
  for (std::size_t row = 0; row < static_cast<std::size_t>(batch.batch); ++row) {
    samples.push_back(batch.tokens[row * 4] / 4);
  }
  return samples;
}

TEST_CASE("a micro-batch holds the samples of its position") {
  const TemporaryFolder folder;
  const Loader loader(counting_dataset(folder), {.seed = 5, .global_batch = 6, .micro_batch = 2});
  CHECK(loader.num_micro_batches() == 3);
  const Batch batch = loader.micro_batch(3, 1);
  CHECK(batch.batch == 2);
  CHECK(batch.seq_len == 4);
  CHECK(batch.first_sample == 20);
  CHECK(batch.num_targets == 8);
  // Sample 20 is the first of the second epoch.
  CHECK(samples_of(batch) ==
        std::vector<std::int64_t>{static_cast<std::int64_t>(sample_index(5, 20, 20)),
                                  static_cast<std::int64_t>(sample_index(5, 20, 21))});
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    CHECK(batch.targets[i] == batch.tokens[i] + 1);
  }
}

TEST_CASE("the samples of a step do not depend on the size of its micro-batches") {
  const TemporaryFolder folder;
  const auto dataset = counting_dataset(folder);
  std::vector<std::int64_t> whole =
      Loader(dataset, {.seed = 5, .global_batch = 6, .micro_batch = 6}).micro_batch(2, 0).tokens;
  for (const std::int64_t micro_batch : {1, 2, 3}) {
    CAPTURE(micro_batch);
    const Loader loader(dataset, {.seed = 5, .global_batch = 6, .micro_batch = micro_batch});
    std::vector<std::int64_t> parts;
    for (std::int64_t index = 0; index < loader.num_micro_batches(); ++index) {
      const Batch batch = loader.micro_batch(2, index);
      parts.insert(parts.end(), batch.tokens.begin(), batch.tokens.end());
    }
    CHECK(parts == whole);
  }
}

TEST_CASE("an epoch uses every sample once") {
  const TemporaryFolder folder;
  const Loader loader(counting_dataset(folder), {.seed = 5, .global_batch = 5, .micro_batch = 5});
  std::vector<std::int64_t> used;
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto samples = samples_of(loader.micro_batch(step, 0));
    used.insert(used.end(), samples.begin(), samples.end());
  }
  CHECK_FALSE(std::ranges::is_sorted(used));
  std::ranges::sort(used);
  std::vector<std::int64_t> all(20);
  std::iota(all.begin(), all.end(), 0);
  CHECK(used == all);
}

TEST_CASE("evaluation reads in order, and ignored targets are not counted") {
  const TemporaryFolder folder;
  const auto dataset = counting_dataset(folder);
  CHECK(samples_of(sequential_batch(*dataset, 17, 3)) == std::vector<std::int64_t>{17, 18, 19});
  CHECK(sequential_batch(*dataset, 17, 0).tokens.empty());
  CHECK_THROWS_AS(sequential_batch(*dataset, 18, 3), ShapeError);
  const TokenDataset documents(make_token_file(folder / "d", {1, 0, 1, 0, 1}, 2, 0), 2, {0, 5});
  CHECK(sequential_batch(documents, 0, 2).num_targets == 2);
}

TEST_CASE("batch sizes that do not fit are refused") {
  const TemporaryFolder folder;
  const auto dataset = counting_dataset(folder);
  CHECK_THROWS_WITH_AS(Loader(dataset, {.seed = 0, .global_batch = 6, .micro_batch = 4}),
                       doctest::Contains("a multiple of micro_batch, got 6 and 4"), ConfigError);
  CHECK_THROWS_AS(Loader(dataset, {.seed = 0, .global_batch = 6, .micro_batch = 0}), ConfigError);
  const Loader loader(dataset, {.seed = 0, .global_batch = 6, .micro_batch = 3});
  CHECK_THROWS_WITH_AS(loader.micro_batch(0, 2), doctest::Contains("must be in [0, 2), got 2"),
                       ShapeError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
