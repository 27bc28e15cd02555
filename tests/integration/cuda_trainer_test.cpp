#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "checkpoint/safetensors/file.h"
#include "runtime/base/thread_pool.h"
#include "runtime/data/prepare.h"
#include "tests/fakecuda/expect.h"
#include "tests/support/temporary_folder.h"
#include "tools/train/train.h"

// The trainer as a whole on a GPU that is none: weights, average, metrics and samples of a run are
// those of the CPU.
using namespace fsdptrain;

namespace {

using testing::TemporaryFolder;

std::string prepared_tokens(const TemporaryFolder& folder) {
  testing::write_file(folder / "text",
                      "The quick brown fox jumps over the lazy dog, and again: "
                      "the dog is quick, the fox is not lazy at all.");
  ThreadPool pool(1);
  const data::TextFile text{.path = folder / "text",
                            .nbytes = std::filesystem::file_size(folder / "text")};
  data::prepare_bytes({text}, {.output = folder / "tokens.bin"}, pool);
  return folder / "tokens.bin";
}

tools::Config small_run(const std::string& tokens, const std::string& dir,
                        const std::string& device) {
  tools::Config config;
  config.run = {.dir = dir, .seed = 7, .threads = 1, .device = device};
  config.model.num_layers = 1;
  config.model.num_heads = 2;
  config.model.embed_dim = 8;
  config.model.max_seq_len = 8;
  config.model.dropout = 0.1;
  config.data.tokens = {tokens};
  config.data.validation_fraction = 0.3;
  config.train.steps = 4;
  config.train.global_batch = 2;
  config.train.micro_batch = 1;
  config.train.seq_len = 6;
  config.train.ema_decay = 0.5;
  config.eval.every = 2;
  config.eval.prompts = {"The "};
  config.eval.sample_tokens = 3;
  config.log.every = 1;
  return config;
}

// By name.
std::map<std::string, std::vector<std::byte>> tensors_of(const std::filesystem::path& path) {
  const checkpoint::SafetensorsReader reader(path);
  std::map<std::string, std::vector<std::byte>> tensors;
  for (const checkpoint::TensorEntry& entry : reader.entries()) {
    std::vector<std::byte>& bytes = tensors[entry.name];
    bytes.resize(static_cast<std::size_t>(entry.shape.numel()) * size_of(entry.dtype));
    reader.read(entry, bytes);
  }
  return tensors;
}

// The values of a key, line by line, where it is there.
std::vector<nlohmann::json> values_of(const std::filesystem::path& path, const std::string& key) {
  std::istringstream lines(testing::read_file(path));
  std::vector<nlohmann::json> values;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (record.contains(key)) {
      values.push_back(record[key]);
    }
  }
  return values;
}

}  // namespace

TEST_SUITE("integration/cuda_trainer") {
  TEST_CASE("a run on the fake device leaves what the same run on the CPU does") {
    const TemporaryFolder folder;
    const std::string tokens = prepared_tokens(folder);
    CHECK(tools::train(small_run(tokens, folder / "cpu", "cpu"), {}) == 0);
    fakecuda::Session session(fakecuda::checked({.seed = 5}));
    tools::Config config = small_run(tokens, folder / "cuda", "cuda");
    CHECK(tools::train(config, {}) == 0);
    for (const char* file : {"weights.safetensors", "weights_ema.safetensors"}) {
      CAPTURE(file);
      const auto expected = tensors_of(folder / "cpu" / file);
      CHECK(expected.size() > 10);
      CHECK(tensors_of(folder / "cuda" / file) == expected);
    }
    for (const char* key : {"loss", "grad_norm", "validation_loss"}) {
      CAPTURE(key);
      const auto expected = values_of(folder / "cpu" / "metrics.jsonl", key);
      CHECK(expected.size() >= 2);
      CHECK(values_of(folder / "cuda" / "metrics.jsonl", key) == expected);
    }
    CHECK(values_of(folder / "cuda" / "samples.jsonl", "text") ==
          values_of(folder / "cpu" / "samples.jsonl", "text"));

    // Weights of a file, on the device from the first step on.
    config.run.dir = folder / "again";
    config.model.init_from = folder / "cpu" / "weights.safetensors";
    config.train.steps = 0;
    config.train.ema_decay = 0;
    CHECK(tools::train(config, {}) == 0);
    CHECK(tensors_of(folder / "again" / "weights.safetensors") ==
          tensors_of(folder / "cpu" / "weights.safetensors"));
    session.finish();
    fakecuda::expect_no_reports(session);
  }

  TEST_CASE("comm.streams says whether reductions have a stream of their own") {
    const TemporaryFolder folder;
    const std::string tokens = prepared_tokens(folder);
    for (const std::string streams : {"separate", "shared"}) {
      CAPTURE(streams);
      fakecuda::Session session(fakecuda::checked({.seed = 5}));
      tools::Config config = small_run(tokens, folder / streams, "cuda");
      config.train.steps = 1;
      config.comm.streams = streams;
      CHECK(tools::train(config, {}) == 0);
      session.finish();
      fakecuda::expect_no_reports(session);
      const auto uses = [&](const std::string& stream) {
        return std::ranges::any_of(session.trace(), [&](const std::string& line) {
          return line.find(" '" + stream + "': ") != std::string::npos;
        });
      };
      CHECK(uses("reduce") == (streams == "separate"));
      CHECK(uses("comm") == (streams == "shared"));
    }
  }
}
