#include "tools/train/run_folder.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tests/support/temporary_folder.h"
#include "tools/config_print.h"

namespace fsdptrain::tools {
namespace {

using doctest::Contains;
using testing::TemporaryFolder;
using Existing = RunFolder::Existing;

constexpr const char* kRecord = R"({"format": "fsdptrain-run", "format_version": 1})";

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

// A folder with everything that a run writes, and a file that it does not.
void make_run(const std::filesystem::path& dir) {
  std::filesystem::create_directories(dir);
  for (const char* name : {"config.toml", "metrics.jsonl", "samples.jsonl", "weights.safetensors",
                           "weights_ema.safetensors", "notes.txt"}) {
    testing::write_file(dir / name, "old");
  }
  testing::write_file(dir / "run.json", kRecord);
}

TEST_SUITE_BEGIN("tools/train/run_folder");

TEST_CASE("of runs that begin at the same time, one has the folder") {
  constexpr int kRuns = 4;
  constexpr int kRounds = 50;
  const TemporaryFolder folder;
  for (int round = 0; round < kRounds; ++round) {
    Config config;
    config.run.dir = folder / ("run" + std::to_string(round));
    std::atomic<int> made{0};
    std::atomic<int> refused{0};
    std::latch start(kRuns);
    // A run holds its folder until it ends.
    std::latch tried(kRuns);
    std::vector<std::jthread> runs;
    for (int run = 0; run < kRuns; ++run) {
      runs.emplace_back([&] {
        start.arrive_and_wait();
        std::optional<RunFolder> held;
        try {
          held.emplace(RunFolder::create(config, Existing::Refuse));
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

TEST_CASE("a run is replaced only on demand: its files and no others") {
  const TemporaryFolder folder;
  make_run(folder / "run");
  const Config config = config_for(folder / "run");
  const auto before = names_in(folder / "run");
  CHECK_THROWS_WITH_AS(RunFolder::create(config, Existing::Refuse),
                       Contains("exists already: give another folder, or move it away, or "
                                "--overwrite the run in it"),
                       ConfigError);
  CHECK_THROWS_AS(RunFolder::check_free(config, Existing::Refuse), ConfigError);
  RunFolder::check_free(config, Existing::Overwrite);
  CHECK(names_in(folder / "run") == before);
  const RunFolder made = RunFolder::create(config, Existing::Overwrite);
  CHECK(names_in(folder / "run") == std::vector<std::string>{"notes.txt"});
  made.write_config(config);
  CHECK(testing::read_file(folder / "run/config.toml") == to_toml(config));
  CHECK(testing::read_file(folder / "run/notes.txt") == "old");
}

TEST_CASE("a folder that is no run's is never replaced") {
  const TemporaryFolder folder;
  make_run(folder / "run");
  const Config config = config_for(folder / "run");
  for (const char* record : {"", "{", "[]", "{}", R"({"format": "other"})", R"({"format": 1})",
                             R"({"format": "fsdptrain-run", "format_version": 2})"}) {
    CAPTURE(record);
    testing::write_file(folder / "run/run.json", record);
    const auto before = names_in(folder / "run");
    for (const auto call :
         {&RunFolder::check_free, +[](const Config&c, Existing e) { RunFolder::create(c, e); }}) {
      CHECK_THROWS_WITH_AS(call(config, Existing::Overwrite),
                           Contains("holds no run.json of fsdptrain), so --overwrite leaves it "
                                    "alone"),
                           ConfigError);
    }
    CHECK(names_in(folder / "run") == before);
  }
  testing::write_file(folder / "file", "text");
  CHECK_THROWS_AS(RunFolder::create(config_for(folder / "file"), Existing::Overwrite), ConfigError);
  CHECK(testing::read_file(folder / "file") == "text");
}

TEST_CASE("an empty folder and none are the same to --overwrite") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "empty");
  for (const char* name : {"empty", "none/at/all"}) {
    RunFolder::check_free(config_for(folder / name), Existing::Overwrite);
    RunFolder::create(config_for(folder / name), Existing::Overwrite);
    CHECK(std::filesystem::is_directory(folder / name));
    CHECK(names_in(folder / name).empty());
  }
}

TEST_CASE("a run.dir that cannot be made is refused before anything is made") {
  const TemporaryFolder folder;
  testing::write_file(folder / "file", "text");
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_symlink("gone", folder / "dangling");
  const auto before = names_in(folder.path());
  const auto check_refused = [&](const std::string& name, const char* message) {
    const Config config = config_for(folder / name);
    for (const Existing existing : {Existing::Refuse, Existing::Overwrite}) {
      for (const auto call :
           {&RunFolder::check_free, +[](const Config&c, Existing e) { RunFolder::create(c, e); }}) {
        CHECK_THROWS_WITH_AS(call(config, existing), Contains(message), PathError);
        CHECK_THROWS_WITH_AS(call(config, existing), Contains("run.dir: "), PathError);
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

TEST_CASE("a run that goes on is not replaced, one that has ended is") {
  const TemporaryFolder folder;
  const Config config = config_for(folder / "run");
  {
    const RunFolder first = RunFolder::create(config, Existing::Refuse);
    testing::write_file(first.record(), kRecord);
    CHECK_THROWS_WITH_AS(RunFolder::create(config, Existing::Overwrite),
                         Contains("a run writes to"), ConfigError);
    CHECK_THROWS_WITH_AS(RunFolder::check_free(config, Existing::Overwrite),
                         Contains("a run writes to"), ConfigError);
  }
  RunFolder::create(config, Existing::Overwrite);
}

TEST_CASE("initial weights in the folder that would be replaced are kept") {
  const TemporaryFolder folder;
  make_run(folder / "run");
  Config config = config_for(folder / "run");
  config.model.init_from = folder / "run/../run/weights.safetensors";
  CHECK_THROWS_WITH_AS(RunFolder::check_free(config, Existing::Overwrite),
                       Contains("model.init_from: "), ConfigError);
  config.model.init_from = folder / "run/notes.txt";
  RunFolder::check_free(config, Existing::Overwrite);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
