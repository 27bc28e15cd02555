#include "tools/train/datasets.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"
#include "tools/run/run_start.h"

namespace fsdptrain::tools {
namespace {

using data::TokenRange;
using doctest::Contains;
using testing::TemporaryFolder;
using testing::write_tokens;

TEST_SUITE_BEGIN("tools/train/datasets");

// Writes that many tokens of a vocabulary of 257.
std::string tokens_at(const std::filesystem::path& path, std::size_t count) {
  write_tokens({path, {257, 256, "byte"}}, std::vector<std::int64_t>(count, 7));
  return path.string();
}

Config config_of(std::vector<std::string> tokens) {
  Config config;
  config.data.tokens = std::move(tokens);
  config.train.seq_len = 4;
  return config;
}

TEST_CASE("sources weigh what their training tokens are, or what data.weights says") {
  const TemporaryFolder folder;
  Config config = config_of({tokens_at(folder / "a", 300), tokens_at(folder / "b", 101)});
  config.data.validation_fraction = 0.1;
  const Datasets by_tokens = open_datasets(config);
  REQUIRE(by_tokens.training.size() == 2);
  CHECK(by_tokens.training[0].weight == 270);
  CHECK(by_tokens.training[1].weight == 91);
  config.data.weights = {0.25, 0.75};
  const Datasets by_weights = open_datasets(config);
  CHECK(by_weights.training[0].weight == 0.25);
  CHECK(by_weights.training[1].weight == 0.75);
}

TEST_CASE("validation is the end of each source") {
  const TemporaryFolder folder;
  Config config = config_of({tokens_at(folder / "a", 300), tokens_at(folder / "b", 101)});
  config.data.validation_fraction = 0.1;
  const Datasets datasets = open_datasets(config);
  CHECK(datasets.training[0].dataset->range() == TokenRange{0, 270});
  CHECK(datasets.training[1].dataset->range() == TokenRange{0, 91});
  REQUIRE(datasets.validation.size() == 2);
  CHECK(datasets.validation[0]->range() == TokenRange{270, 300});
  CHECK(datasets.validation[1]->range() == TokenRange{91, 101});
  CHECK(datasets.num_training_tokens() == 361);
  CHECK(datasets.num_validation_tokens() == 40);
  config.data.validation_fraction = 0;
  CHECK(open_datasets(config).validation.empty());
}

TEST_CASE("with data.validation it is all of those files, and training all of data.tokens") {
  const TemporaryFolder folder;
  Config config = config_of({tokens_at(folder / "a", 300)});
  config.data.validation = {tokens_at(folder / "b", 101), tokens_at(folder / "c", 50)};
  // Of no account then.
  config.data.validation_fraction = 0.5;
  const Datasets datasets = open_datasets(config);
  REQUIRE(datasets.training.size() == 1);
  CHECK(datasets.training[0].dataset->range() == TokenRange{0, 300});
  REQUIRE(datasets.validation.size() == 2);
  CHECK(datasets.validation[0]->source().name() == config.data.validation[0]);
  CHECK(datasets.validation[0]->range() == TokenRange{0, 101});
  CHECK(datasets.validation[1]->range() == TokenRange{0, 50});
}

TEST_CASE("a run goes on behind its last sample, whatever size its steps had and have") {
  const TemporaryFolder folder;
  Config config = config_of({tokens_at(folder / "a", 300)});
  config.train.global_batch = 8;
  config.train.micro_batch = 4;
  const Datasets datasets = open_datasets(config);
  CHECK(make_loader(config, datasets).micro_batch(3, 1).first_sample == 28);
  for (const std::int64_t samples : {24, 6, 600}) {
    const data::Loader loader = make_loader(config, datasets, {.step = 3, .samples = samples});
    CHECK(loader.micro_batch(3, 0).first_sample == static_cast<std::uint64_t>(samples));
    CHECK(loader.micro_batch(4, 1).first_sample == static_cast<std::uint64_t>(samples + 12));
  }
}

TEST_CASE("a file of the run is known by its content") {
  const TemporaryFolder folder;
  const Config config = config_of({tokens_at(folder / "a", 300), tokens_at(folder / "b", 301)});
  const std::vector<DataFile> files = open_datasets(config).files();
  REQUIRE(files.size() == 2);
  CHECK(files[0].path == folder / "a");
  CHECK(files[1].num_tokens == 301);
  RunStart start;
  check_data(start, files);
  start.fingerprints = {files[0].fingerprint, files[1].fingerprint};
  check_data(start, files);
  CHECK_THROWS_WITH_AS(check_data(start, {files[0]}), Contains("there are 1 files"), ConfigError);
  std::ranges::reverse(start.fingerprints);
  CHECK_THROWS_WITH_AS(check_data(start, files), Contains("is not the file that the run"),
                       ConfigError);
}

TEST_CASE("each source is listed once, training before validation") {
  const TemporaryFolder folder;
  Config config = config_of({tokens_at(folder / "a", 300), tokens_at(folder / "b", 101)});
  const auto names = [](const Datasets& datasets) {
    std::vector<std::string> all;
    for (const data::TokenSource* source : datasets.sources()) {
      all.push_back(source->name());
    }
    return all;
  };
  // Validation reads from the same sources.
  CHECK(names(open_datasets(config)) == config.data.tokens);
  config.data.validation = {tokens_at(folder / "c", 50)};
  CHECK(names(open_datasets(config)) ==
        std::vector{config.data.tokens[0], config.data.tokens[1], config.data.validation[0]});
}

TEST_CASE("a vocabulary that is larger than the model's, or another than the rest has, is named") {
  const TemporaryFolder folder;
  const std::string path = tokens_at(folder / "a", 300);
  Config config = config_of({path});
  config.model.vocab_size = 256;
  const std::string message = "model.vocab_size: 256 is less than the 257 of " + path;
  CHECK_THROWS_WITH_AS(open_datasets(config), Contains(message.c_str()), ConfigError);
  config.model.vocab_size = 257;
  CHECK(open_datasets(config).vocabulary().size == 257);

  const std::string other = (folder / "other").string();
  write_tokens({other, {200, 199, "other"}}, std::vector<std::int64_t>(50, 7));
  config.data.validation = {other};
  const std::string both = path + " and " + other + ": files that are read together must have one ";
  CHECK_THROWS_WITH_AS(open_datasets(config), Contains(both.c_str()), DataError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
