#include "tools/run/run_folder.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <latch>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/rank_context.h"
#include "tests/support/temporary_folder.h"
#include "tools/config/print.h"
#include "tools/run/run_record.h"

namespace fsdptrain::tools {
namespace {

using doctest::Contains;
using testing::TemporaryFolder;
using Options = RunFolder::Options;

Config config_for(const std::filesystem::path& dir) {
  Config config;
  config.run.dir = dir;
  return config;
}

std::vector<std::string> names_in(const std::filesystem::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

// A safetensors file.
const std::string kNoTensors("\2\0\0\0\0\0\0\0{}", 10);

// What a run that has ended leaves, and a file that none does.
void make_run(const Config& config, RunStatus status = RunStatus::Done) {
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  RunFolder folder = RunFolder::claim(config, {});
  folder.open();
  RunRecord record(folder.record(), config, {}, folder.earlier());
  if (status != RunStatus::Running) {
    record.end({.status = status, .steps = 7});
  }
  folder.write_config(config);
  testing::write_file(folder.weights(), kNoTensors);
  testing::write_file(folder.path() / "notes.txt", "mine");
}

// Both, for what is refused before anything is changed.
std::vector<std::function<void(const Config&, const Options&)>> ways_in() {
  return {RunFolder::check_free,
          [](const Config& config, const Options& options) { RunFolder::claim(config, options); }};
}

TEST_SUITE_BEGIN("tools/run/run_folder");

TEST_CASE("of runs that begin at the same time, one has the folder") {
  constexpr int kRuns = 4;
  constexpr int kRounds = 20;
  const TemporaryFolder folder;
  for (int round = 0; round < kRounds; ++round) {
    const Config config = config_for(folder / ("run" + std::to_string(round)));
    std::atomic<int> made{0};
    std::atomic<int> refused{0};
    std::latch start(kRuns);
    // A run holds its folder until it ends.
    std::latch tried(kRuns);
    std::vector<std::jthread> runs;
    for (int run = 0; run < kRuns; ++run) {
      runs.emplace_back([&] {
        std::optional<RunFolder> held;
        start.arrive_and_wait();
        try {
          held.emplace(RunFolder::claim(config, {}));
          held->open();
          ++made;
        } catch (const ConfigError&) {
          ++refused;
        }
        tried.arrive_and_wait();
      });
    }
    runs.clear();
    CHECK(made == 1);
    CHECK(refused == kRuns - 1);
  }
}

TEST_CASE("a run that is there goes on, and knows what it was") {
  const TemporaryFolder folder;
  Config config = config_for(folder / "run");
  make_run(config, RunStatus::Stopped);
  RunFolder again = RunFolder::claim(config, {});
  CHECK(again.earlier()->attempt() == 1);
  CHECK(again.earlier()->steps() == 7);
  CHECK(again.changes().empty());
  CHECK_FALSE(again.is_done());
  const auto before = names_in(folder / "run");
  CHECK(again.open() == std::nullopt);
  CHECK(names_in(folder / "run") == before);
}

TEST_CASE(
    "what a killed save has left is removed when the run goes on, and what is foreign is not") {
  const TemporaryFolder folder;
  const Config config = config_for(folder / "run");
  make_run(config, RunStatus::Running);
  const auto staging = folder / "run/checkpoints/.staging";
  std::filesystem::create_directories(staging / ("20." + std::string(32, 'a')));
  std::filesystem::create_directories(staging / "mine");
  CHECK_THROWS_AS(RunFolder::claim(config_for(folder / "run/checkpoints"), {}), ConfigError);
  CHECK(names_in(staging).size() == 2);
  RunFolder::claim(config, {});
  CHECK(names_in(staging) == std::vector<std::string>{"mine"});
}

TEST_CASE("a run is done when it says so, has its weights, and nothing about it is new") {
  const TemporaryFolder folder;
  Config config = config_for(folder / "run");
  make_run(config);
  CHECK(RunFolder::claim(config, {}).is_done());
  config.train.steps += 5;
  const Options allowed{.allowed = {"train.steps"}};
  CHECK_FALSE(RunFolder::claim(config, allowed).is_done());
  CHECK(RunFolder::claim(config, allowed).changes().size() == 1);
  config.train.steps -= 5;
  // A full disk leaves such files.
  testing::write_file(folder / "run/weights.safetensors", "");
  CHECK_FALSE(RunFolder::claim(config, {}).is_done());
  std::filesystem::remove(folder / "run/weights.safetensors");
  CHECK_FALSE(RunFolder::claim(config, {}).is_done());
}

TEST_CASE("another configuration is refused, with all keys that decide about numbers") {
  const TemporaryFolder folder;
  Config config = config_for(folder / "run");
  make_run(config, RunStatus::Running);
  config.optimizer.lr = 0.5;
  config.model.num_layers = 3;
  config.rules = {{.match = "h.0.*", .freeze = true}};
  for (const auto& way : ways_in()) {
    CHECK_THROWS_WITH_AS(
        way(config, {.allowed = {"optimizer.lr"}}),
        Contains("model.num_layers: 6 is now 3; rules: nothing is now [[rules]] match = "
                 "\"h.0.*\" freeze = true ; give another run.dir, --overwrite, or, to go on with "
                 "it changed, --allow-change=model.num_layers,rules"),
        ConfigError);
  }
  // What it says, where, and on how much.
  config = config_for(folder / "run");
  config.log.every = 3;
  config.run.threads = 2;
  config.mesh.shard = 4;
  config.checkpoint.every = 9;
  CHECK(RunFolder::claim(config, {}).changes().empty());
}

TEST_CASE("a run that is overwritten is moved aside, whole, and only when the new one opens") {
  const TemporaryFolder folder;
  const Config config = config_for(folder / "run/");
  make_run(config);
  const auto before = names_in(folder / "run");
  for (const auto& way : ways_in()) {
    way(config, {.overwrite = true});
    CHECK(names_in(folder.path()) == std::vector<std::string>{"run"});
    CHECK(names_in(folder / "run") == before);
  }
  for (const char* old : {"run.old-1", "run.old-2"}) {
    RunFolder next = RunFolder::claim(config, {.overwrite = true});
    CHECK(next.open() == folder / old);
    CHECK_FALSE(next.earlier());
    CHECK(names_in(folder / "run") == std::vector<std::string>{"lock"});
    next.write_config(config);
    testing::write_file(next.record(), R"({"format": "fsdptrain-run", "format_version": 1})");
  }
  CHECK(names_in(folder / "run.old-1") == before);
  CHECK(testing::read_file(folder / "run.old-2/config.toml") == to_toml(config));
}

TEST_CASE("a folder that is no run's is left alone") {
  const TemporaryFolder folder;
  const Config config = config_for(folder / "run");
  make_run(config);
  for (const char* record : {"", "{", "[]", "{}", R"({"format": "other"})", R"({"format": 1})",
                             R"({"format": "fsdptrain-run", "format_version": 2})"}) {
    CAPTURE(record);
    testing::write_file(folder / "run/run.json", record);
    const auto before = names_in(folder / "run");
    for (const auto& way : ways_in()) {
      CHECK_THROWS_WITH_AS(way(config, {.overwrite = true}),
                           Contains("is not the folder of a run (it holds no run.json of "
                                    "fsdptrain), so --overwrite leaves it alone"),
                           ConfigError);
      CHECK_THROWS_WITH_AS(way(config, {}), Contains("give another folder, or move it away"),
                           ConfigError);
    }
    CHECK(names_in(folder / "run") == before);
  }
  testing::write_file(folder / "file", "text");
  CHECK_THROWS_AS(RunFolder::claim(config_for(folder / "file"), {.overwrite = true}), ConfigError);
  CHECK(testing::read_file(folder / "file") == "text");
}

TEST_CASE("a record that is damaged, or of a program that could not go on, is an error") {
  const TemporaryFolder folder;
  const Config config = config_for(folder / "run");
  make_run(config);
  const auto good = nlohmann::ordered_json::parse(testing::read_file(folder / "run/run.json"));
  for (const char* key : {"attempt", "status", "data", "configuration"}) {
    CAPTURE(key);
    auto bad = good;
    bad.erase(key);
    testing::write_file(folder / "run/run.json", bad.dump());
    CHECK_THROWS_WITH_AS(RunFolder::claim(config, {}), Contains("run.json: is damaged"), DataError);
    RunFolder::claim(config, {.overwrite = true});
  }
  auto old = good;
  old.erase("config");
  testing::write_file(folder / "run/run.json", old.dump());
  CHECK_THROWS_WITH_AS(RunFolder::claim(config, {}), Contains("of a program that could not go on"),
                       DataError);
}

TEST_CASE("an empty folder, none, and one that holds a lock alone are the same") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "empty");
  { RunFolder::claim(config_for(folder / "locked"), {}).open(); }
  for (const char* name : {"empty", "none/at/all", "locked"}) {
    for (const bool overwrite : {false, true}) {
      RunFolder::check_free(config_for(folder / name), {.overwrite = overwrite});
      RunFolder made = RunFolder::claim(config_for(folder / name), {.overwrite = overwrite});
      CHECK(made.open() == std::nullopt);
      CHECK(names_in(folder / name) == std::vector<std::string>{"lock"});
    }
  }
}

TEST_CASE("a run.dir that cannot be made is refused before anything is made") {
  const TemporaryFolder folder;
  testing::write_file(folder / "file", "text");
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_symlink("gone", folder / "dangling");
  const auto before = names_in(folder.path());
  const auto check_refused = [&](const std::string& name, const char* message) {
    for (const bool overwrite : {false, true}) {
      for (const auto& way : ways_in()) {
        const auto call = [&] { way(config_for(folder / name), {.overwrite = overwrite}); };
        CHECK_THROWS_WITH_AS(call(), Contains(message), PathError);
        CHECK_THROWS_WITH_AS(call(), Contains("run.dir: "), PathError);
      }
    }
    CHECK(names_in(folder.path()) == before);
  };
  check_refused("file/run", "file/run: creating the folder failed: Not a directory; what is there");
  check_refused("loop", "loop: creating the folder failed: Too many levels of symbolic links");
  check_refused("dangling", "dangling: creating the folder failed: it is a link to nothing");
  check_refused("dangling/run", "dangling: creating the folder failed: it is a link to nothing");
  check_refused(std::string(300, 'n'), "creating the folder failed: File name too long; give a");
}

TEST_CASE("a run that goes on has its folder until it ends") {
  const TemporaryFolder folder;
  const Config config = config_for(folder / "run");
  make_run(config);
  {
    const RunFolder first = RunFolder::claim(config, {});
    for (const bool overwrite : {false, true}) {
      CHECK_THROWS_WITH_AS(RunFolder::claim(config, {.overwrite = overwrite}),
                           Contains("the folder is in use by process"), ConfigError);
    }
    first.check_held();
    std::filesystem::remove_all(folder / "run");
    CHECK_THROWS_AS(first.check_held(), IoError);
  }
  make_run(config);
  RunFolder::claim(config, {});
}

TEST_CASE("what the run is to read is not moved away with the folder") {
  const TemporaryFolder folder;
  Config config = config_for(folder / "run");
  make_run(config);
  std::filesystem::create_directories(folder / "run/checkpoints/step-00000007");
  for (const char* input : {"run/../run/weights.safetensors", "run/checkpoints/step-00000007"}) {
    config.model.init_from = folder / input;
    for (const auto& way : ways_in()) {
      CHECK_THROWS_WITH_AS(way(config, {.overwrite = true}), Contains("model.init_from: "),
                           ConfigError);
    }
  }
  config.model.init_from = folder / "run.old";
  RunFolder::claim(config, {.overwrite = true});
}

TEST_CASE("a name that cannot be moved, a file as lock, and places of checkpoints are refused") {
  const TemporaryFolder folder;
  make_run(config_for(folder / "run"));
  const auto before = names_in(folder / "run");
  for (const char* name : {"run/.", "run/./", "run/lock/.."}) {
    for (const auto& way : ways_in()) {
      CHECK_THROWS_WITH_AS(way(config_for(folder / name), {.overwrite = true}),
                           Contains("cannot be moved away by --overwrite under this name"),
                           ConfigError);
    }
  }
  std::filesystem::create_directories(folder / "run/checkpoints/.staging");
  for (const char* name : {"run/checkpoints/.staging", "run/checkpoints/.trash/deep", "run/lock"}) {
    for (const auto& way : ways_in()) {
      CHECK_THROWS_WITH_AS(way(config_for(folder / name), {}), Contains("give another folder"),
                           ConfigError);
    }
  }
  std::filesystem::remove_all(folder / "run/checkpoints");
  CHECK(names_in(folder / "run") == before);
  std::filesystem::remove_all(folder / "run/lock");
  testing::write_file(folder / "run/lock", "text");
  CHECK_THROWS_WITH_AS(RunFolder::claim(config_for(folder / "run"), {}),
                       Contains("run/lock is no folder"), ConfigError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
