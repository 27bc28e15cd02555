#include "runtime/data/loader.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <utility>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"

namespace fsdptrain::data {
namespace {

using testing::make_token_file;
using testing::TemporaryFolder;

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

// Loaders of one source.
Loader loader_of(std::shared_ptr<const TokenDataset> dataset, const Loader::Options& options) {
  return {{{std::move(dataset), 1}}, options};
}

TEST_CASE("a micro-batch holds the samples of its position") {
  const TemporaryFolder folder;
  const Loader loader =
      loader_of(counting_dataset(folder), {.seed = 5, .global_batch = 6, .micro_batch = 2});
  CHECK(loader.num_micro_batches() == 3);
  const Batch batch = loader.micro_batch(3, 1);
  CHECK(batch.batch == 2);
  CHECK(batch.seq_len == 4);
  CHECK(batch.first_sample == 20);
  CHECK(batch.num_targets == 8);
  CHECK(samples_of(batch) ==
        std::vector<std::int64_t>{static_cast<std::int64_t>(loader.sample(20).window),
                                  static_cast<std::int64_t>(loader.sample(21).window)});
  CHECK(batch.positions == std::vector<std::int64_t>{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(batch.document_ids == std::vector<std::int64_t>(8, 0));
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    CHECK(batch.targets[i] == batch.tokens[i] + 1);
  }
}

TEST_CASE("a loader that goes on where steps had another size has the samples behind those") {
  const TemporaryFolder folder;
  const auto dataset = counting_dataset(folder);
  const Loader whole = loader_of(dataset, {.seed = 5, .global_batch = 6, .micro_batch = 2});
  // Three steps of 6 samples, then steps of 2 and of 10: their first would be sample 6 and 30.
  for (const std::uint64_t size : {2U, 10U}) {
    CAPTURE(size);
    const Loader loader = loader_of(dataset, {.seed = 5,
                                              .global_batch = static_cast<std::int64_t>(size),
                                              .micro_batch = 2,
                                              .first_sample = 18 - 3 * size});
    const Batch batch = loader.micro_batch(3, 0);
    CHECK(batch.first_sample == 18);
    CHECK(samples_of(batch) == samples_of(whole.micro_batch(3, 0)));
    CHECK(loader.micro_batch(4, 0).first_sample == 18 + size);
  }
}

TEST_CASE("the samples of a step do not depend on the size of its micro-batches") {
  const TemporaryFolder folder;
  const auto dataset = counting_dataset(folder);
  std::vector<std::int64_t> whole =
      loader_of(dataset, {.seed = 5, .global_batch = 6, .micro_batch = 6}).micro_batch(2, 0).tokens;
  for (const std::int64_t micro_batch : {1, 2, 3}) {
    CAPTURE(micro_batch);
    const Loader loader =
        loader_of(dataset, {.seed = 5, .global_batch = 6, .micro_batch = micro_batch});
    std::vector<std::int64_t> parts;
    for (std::int64_t index = 0; index < loader.num_micro_batches(); ++index) {
      const Batch batch = loader.micro_batch(2, index);
      parts.insert(parts.end(), batch.tokens.begin(), batch.tokens.end());
    }
    CHECK(parts == whole);
  }
}

TEST_CASE("a block of samples is whole epochs, and each uses every sample once") {
  const TemporaryFolder folder;
  const Loader loader = loader_of(counting_dataset(folder), {.seed = 5});
  // Of 20 samples, epochs 0 to 50 lie within the first block of 1,024, and 51 begins in it.
  std::map<std::uint64_t, std::vector<std::uint64_t>> windows;
  for (std::uint64_t number = 0; number < 1024; ++number) {
    const Loader::Sample sample = loader.sample(number);
    windows[sample.epoch].push_back(sample.window);
  }
  CHECK(windows.size() == 52);
  std::vector<std::uint64_t> all(20);
  std::iota(all.begin(), all.end(), 0);
  for (std::uint64_t epoch = 0; epoch < 51; ++epoch) {
    CHECK_FALSE(std::ranges::is_sorted(windows[epoch]));
    std::ranges::sort(windows[epoch]);
    CHECK(windows[epoch] == all);
  }
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
  CHECK_THROWS_WITH_AS(loader_of(dataset, {.seed = 0, .global_batch = 6, .micro_batch = 4}),
                       doctest::Contains("a multiple of micro_batch, got 6 and 4"), ConfigError);
  CHECK_THROWS_AS(loader_of(dataset, {.seed = 0, .global_batch = 6, .micro_batch = 0}),
                  ConfigError);
  const Loader loader = loader_of(dataset, {.seed = 0, .global_batch = 6, .micro_batch = 3});
  CHECK_THROWS_WITH_AS(loader.micro_batch(0, 2), doctest::Contains("must be in [0, 2), got 2"),
                       ShapeError);
}

TEST_CASE("each of several sources goes through its own epochs, as often as its weight says") {
  const TemporaryFolder folder;
  std::vector<WeightedDataset> sources;
  const std::vector<std::uint64_t> sizes{1, 3, 700};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<std::uint16_t> tokens(2 * sizes[i] + 1, static_cast<std::uint16_t>(i));
    const auto file = make_token_file(folder / fmt::format("{}", i), tokens, 3);
    sources.push_back({std::make_shared<TokenDataset>(file, 2, TokenRange{0, tokens.size()}),
                       std::vector<double>{1, 2, 5}[i]});
  }
  const Loader loader(sources, {.seed = 9, .global_batch = 4, .micro_batch = 2});
  constexpr std::uint64_t kBlocks = 30;
  std::map<std::pair<std::size_t, std::uint64_t>, std::vector<std::uint64_t>> windows;
  for (std::uint64_t number = 0; number < kBlocks * 1024; ++number) {
    const Loader::Sample sample = loader.sample(number);
    windows[{sample.source, sample.epoch}].push_back(sample.window);
  }
  for (std::size_t source = 0; source < 3; ++source) {
    const std::uint64_t used = kBlocks * std::vector<std::uint64_t>{128, 256, 640}[source];
    for (std::uint64_t epoch = 0; epoch < used / sizes[source]; ++epoch) {
      std::vector<std::uint64_t> all(sizes[source]);
      std::iota(all.begin(), all.end(), 0);
      auto& of_epoch = windows[{source, epoch}];
      std::ranges::sort(of_epoch);
      CHECK(of_epoch == all);
    }
  }
  // Rows are of the source that sample() names.
  const Batch batch = loader.micro_batch(100, 1);
  for (std::size_t row = 0; row < 2; ++row) {
    CHECK(batch.tokens[2 * row] ==
          static_cast<std::int64_t>(loader.sample(batch.first_sample + row).source));
  }
}

TEST_CASE("sources in one loader must fit each other") {
  const TemporaryFolder folder;
  const auto dataset = counting_dataset(folder);
  const auto with = [&](std::shared_ptr<const TokenDataset> other) {
    return Loader({{dataset, 1}, {std::move(other), 1}}, {});
  };
  const auto file = make_token_file(folder / "other", std::vector<std::uint16_t>(9), 82);
  CHECK_THROWS_WITH_AS(with(std::make_shared<TokenDataset>(file, 4, TokenRange{0, 9})),
                       doctest::Contains("other: files that are read together must have one"),
                       DataError);
  CHECK_THROWS_WITH_AS(with(std::make_shared<TokenDataset>(
                           std::make_shared<TokenSource>(folder / "t"), 5, TokenRange{0, 81})),
                       doctest::Contains("all sources must have one seq_len, got 4 and 5"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(Loader({}, {}), doctest::Contains("needs a source"), ConfigError);
}

TEST_CASE("the order is frozen: a resumed run must find the same samples") {
  const TemporaryFolder folder;
  const auto dataset = counting_dataset(folder);
  const Loader loader({{dataset, 3}, {dataset, 1}}, {.seed = 1234});
  std::string order;
  for (const std::uint64_t number : {0, 1, 2, 3, 1024, 1'000'000}) {
    const Loader::Sample sample = loader.sample(number);
    order += fmt::format("{}:{}:{} ", sample.source, sample.epoch, sample.window);
  }
  CHECK(order == "0:32:13 1:4:9 0:38:16 0:10:19 0:75:16 1:12501:4 ");
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
