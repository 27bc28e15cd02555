#include "tools/train/weights.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "checkpoint/safetensors/file.h"
#include "comm/lone_world.h"
#include "comm/run_ranks.h"
#include "kernels/copy.h"
#include "runtime/base/error.h"
#include "runtime/nn/linear.h"
#include "shard/parts.h"
#include "shard/sharded_model.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::tools {
namespace {

using doctest::Contains;
using testing::TemporaryFolder;

TEST_SUITE_BEGIN("tools/train/weights");

// On the ranks of a group, or on one.
struct Model {
  explicit Model(std::uint64_t seed) : Model(seed, std::make_unique<comm::LoneWorld>()) {}
  Model(std::uint64_t seed, comm::ProcessGroup& ranks)
      : module({.in = 3, .out = 5}), sharded(module, ranks, {.seed = seed}) {
    sharded.fully_shard(module);
  }

  // Of this rank.
  std::vector<double> values() const {
    std::vector<double> all;
    for (const shard::ParameterPart& part : shard::parts_of(sharded)) {
      const auto values = part.values().to_vector();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  // Of a model that is on its own.
  comm::World& world() { return alone->world(); }

  std::unique_ptr<comm::LoneWorld> alone;
  nn::Linear module;
  shard::ShardedModel sharded;

 private:
  Model(std::uint64_t seed, std::unique_ptr<comm::LoneWorld> world)
      : Model(seed, world->world().group()) {
    alone = std::move(world);
  }
};

WeightsInfo some_info() {
  WeightsInfo info{.config = {}, .vocabulary = {257, 256, "byte"}};
  info.config.train.steps = 7;
  info.config.run.dir = "a \"b\"";
  return info;
}

// A file of zeros.
void write_tensors(const std::filesystem::path& path,
                   const std::vector<checkpoint::TensorSpec>& specs,
                   const std::map<std::string, std::string>& metadata = {}) {
  checkpoint::SafetensorsWriter writer(path, metadata, specs);
  for (const auto& entry : writer.entries()) {
    writer.write(entry.name, std::vector<std::byte>(static_cast<std::size_t>(entry.shape.numel()) *
                                                    size_of(entry.dtype)));
  }
  writer.commit();
}

TEST_CASE("weights come back bit for bit, with what they were trained by") {
  const TemporaryFolder folder;
  Model saved(1);
  Model loaded(2);
  save_weights(folder / "w", saved.world(), saved.sharded, some_info());
  REQUIRE(loaded.values() != saved.values());
  load_weights(folder / "w", loaded.sharded);
  CHECK(loaded.values() == saved.values());
  const WeightsInfo info = read_weights_info(folder / "w");
  CHECK(info.vocabulary == data::Vocabulary{257, 256, "byte"});
  CHECK(info.config.train.steps == 7);
  CHECK(info.config.run.dir == "a \"b\"");
  CHECK(checkpoint::SafetensorsReader(folder / "w").metadata().at("format") == "fsdptrain");
}

TEST_CASE("ranks write what one writes, and read their parts of it") {
  const TemporaryFolder folder;
  Model one(1);
  save_weights(folder / "one", one.world(), one.sharded, some_info());
  for (const int num_ranks : {2, 3, 4}) {
    CAPTURE(num_ranks);
    std::vector<std::vector<double>> parts(static_cast<std::size_t>(num_ranks));
    comm::run_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
      using Path = std::optional<std::filesystem::path>;
      Model saved(1, world.group());
      save_weights(world.rank() == 0 ? Path(folder / "many") : Path(), world, saved.sharded,
                   some_info());
      Model loaded(2, world.group());
      load_weights(folder / "one", loaded.sharded);
      parts[static_cast<std::size_t>(world.rank())] = loaded.values();
      // Else a window on another rank would not have the same.
      if (loaded.values() != saved.values()) {
        fail("rank {} reads other values", world.rank());
      }
    });
    CHECK(testing::read_file(folder / "many") == testing::read_file(folder / "one"));
    std::size_t count = 0;
    for (const auto& part : parts) {
      count += part.size();
    }
    CHECK(count == one.values().size());
  }
}

TEST_CASE("all that does not fit is listed, and no value changes") {
  const TemporaryFolder folder;
  Model model(1);
  const std::vector<double> before = model.values();
  write_tensors(folder / "w", {{"weight", DType::Float32, {3, 5}},
                               {"extra", DType::Float32, {1}},
                               {"more", DType::Int64, {}}});
  std::string message;
  try {
    load_weights(folder / "w", model.sharded);
  } catch (const DataError& error) {
    message = error.what();
  }
  CAPTURE(message);
  for (const auto* part :
       {"w: does not fit the model: ", "weight is float32 [3, 5], not float32 [5, 3]",
        "bias is missing", "extra is no parameter of the model",
        "more is no parameter of the model"}) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
  CHECK(model.values() == before);
  write_tensors(folder / "w", {{"weight", DType::Float64, {5, 3}}, {"bias", DType::Float32, {5}}});
  CHECK_THROWS_WITH_AS(load_weights(folder / "w", model.sharded),
                       Contains("weight is float64 [5, 3], not float32 [5, 3]"), DataError);
  CHECK(model.values() == before);
}

// A file without metadata that holds `weight` and `bias` of Model as `dtype`.
void write_model(const std::filesystem::path& path, DType dtype, const Tensor& weight,
                 const Tensor& bias) {
  checkpoint::SafetensorsWriter writer(path, {}, {{"weight", dtype, {5, 3}}, {"bias", dtype, {5}}});
  for (const auto& [name, values] : {std::pair("weight", weight), std::pair("bias", bias)}) {
    const Tensor stored = Tensor::empty(values.shape(), dtype);
    kernels::copy(stored.launch(), stored.view(), values.view());
    writer.write(name, stored.bytes());
  }
  writer.commit();
}

TEST_CASE("files of other tools are read: no metadata, and 16-bit floats as what they are") {
  const TemporaryFolder folder;
  // Exact in all three dtypes.
  const std::vector<float> weight{0.5F, -1.25F, 3, 0, 1, 2, -2, 0.125F, 7, 8, 9, -10, 11, 12, 13};
  const std::vector<float> bias{1, 2, 3, 4, -0.0078125F};
  std::vector<double> expected(weight.begin(), weight.end());
  expected.insert(expected.end(), bias.begin(), bias.end());
  const Tensor weights = Tensor::from<float>(weight, {5, 3});
  const Tensor biases = Tensor::from<float>(bias, {5});
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16}) {
    CAPTURE(dtype);
    Model model(1);
    const std::uint64_t epoch = model.sharded.units().front()->group().epoch();
    write_model(folder / "w", dtype, weights, biases);
    load_weights(folder / "w", model.sharded);
    CHECK(model.values() == expected);
    CHECK(model.sharded.units().front()->group().epoch() > epoch);
  }
}

class SizeLimit {
 public:
  explicit SizeLimit(rlim_t nbytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{nbytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  ~SizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_CASE("weights that cannot be written leave the older file, and no other") {
  const TemporaryFolder folder;
  Model older(1);
  Model newer(2);
  save_weights(folder / "w", older.world(), older.sharded, some_info());
  const std::string before = testing::read_file(folder / "w");
  {
    // The header fits, the values do not.
    const SizeLimit limit(before.size() - 40);
    CHECK_THROWS_WITH_AS(save_weights(folder / "w", newer.world(), newer.sharded, some_info()),
                         Contains("File too large"), IoError);
  }
  CHECK(testing::read_file(folder / "w") == before);
  const std::filesystem::directory_iterator files(folder.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

// An IoError, on every rank; by an error of its own, since a rank is no thread of the test.
void expect_error_of_rank_0(const comm::World& world, const std::function<void()>& action) {
  std::string text;
  try {
    action();
  } catch (const IoError& error) {
    text = error.what();
  }
  if (!text.starts_with("rank 0: ")) {
    fail("rank {} has no error of rank 0, got {}", world.rank(), text);
  }
}

TEST_CASE("weights that rank 0 cannot write are an error of all ranks, which say so") {
  const TemporaryFolder folder;
  comm::run_ranks({.num_ranks = 3}, [&](comm::World& world) {
    using Path = std::optional<std::filesystem::path>;
    Model model(1, world.group());
    expect_error_of_rank_0(world, [&] {
      save_weights(world.rank() == 0 ? Path(folder / "none" / "w") : Path(), world, model.sharded,
                   some_info());
    });
    save_weights(world.rank() == 0 ? Path(folder / "w") : Path(), world, model.sharded,
                 some_info());
  });
  CHECK(std::filesystem::exists(folder / "w"));
}

TEST_CASE("weights that are complete and cannot get their name are an error of all ranks") {
  const TemporaryFolder folder;
  // Once the file is begun, what ranks say next finds its name taken.
  const auto take_name = [&folder] {
    if (!std::filesystem::is_empty(folder.path())) {
      std::filesystem::create_directories(folder / "w" / "by a folder");
    }
  };
  comm::run_ranks({.num_ranks = 3, .world = {.delay = take_name}}, [&](comm::World& world) {
    using Path = std::optional<std::filesystem::path>;
    Model model(1, world.group());
    expect_error_of_rank_0(world, [&] {
      save_weights(world.rank() == 0 ? Path(folder / "w") : Path(), world, model.sharded,
                   some_info());
    });
  });
}

TEST_CASE("a folder that another process took is an error of all ranks, and nothing is written") {
  const TemporaryFolder folder;
  comm::run_ranks({.num_ranks = 3}, [&](comm::World& world) {
    Config config;
    config.run.dir = folder / "run";
    config.model.num_layers = 1;
    config.model.num_heads = 1;
    config.model.embed_dim = 8;
    std::optional<RunFolder> mine;
    if (world.rank() == 0) {
      mine = RunFolder::claim(config, {});
      mine->open();
      std::filesystem::remove_all(folder / "run" / "lock");
    }
    TrainingRank rank(config, world.group());
    expect_error_of_rank_0(world, [&] {
      save_run_weights(mine ? &*mine : nullptr, world, rank, some_info().vocabulary);
    });
  });
  CHECK_FALSE(std::filesystem::exists(folder / "run" / "weights.safetensors"));
}

TEST_CASE("metadata that are not there are named") {
  const TemporaryFolder folder;
  write_tensors(folder / "w", {}, {{"format", "pt"}});
  CHECK_THROWS_WITH_AS(read_weights_info(folder / "w"), Contains("lack \"config\""), DataError);
  write_tensors(folder / "w", {}, {{"config", ""}});
  CHECK_THROWS_WITH_AS(read_weights_info(folder / "w"), Contains("lack \"vocab_size\""), DataError);
  const auto check_refused = [&](const char* size, const char* end, const char* message) {
    write_tensors(
        folder / "w", {},
        {{"config", ""}, {"tokenizer", "t"}, {"vocab_size", size}, {"end_of_document", end}});
    CHECK_THROWS_WITH_AS(read_weights_info(folder / "w"), Contains(message), DataError);
  };
  check_refused("12x", "none", "\"vocab_size\" of its metadata must be a whole number of 32 bits");
  check_refused("-1", "none", "must be a whole number of 32 bits, got \"-1\"");
  check_refused("12", "", "\"end_of_document\" of its metadata must be a whole number");
  check_refused("12", "12", "the end-of-document token must be below the vocabulary size 12");
  check_refused("0", "none", "the vocabulary size must be 1 to");
  write_tensors(
      folder / "w", {},
      {{"config", ""}, {"tokenizer", "t"}, {"vocab_size", "5"}, {"end_of_document", "none"}});
  CHECK(read_weights_info(folder / "w").vocabulary == data::Vocabulary{5, std::nullopt, "t"});
  write_tensors(folder / "w", {}, {{"config", "[train]\nstepz = 1\n"}, {"tokenizer", "byte"}});
  CHECK_THROWS_WITH_AS(read_weights_info(folder / "w"), Contains("unknown key"), ConfigError);
  CHECK_THROWS_AS(read_weights_info(folder / "none"), DataError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
