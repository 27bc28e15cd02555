#include "tools/train/run_folder.h"

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/runtime/data/token_fixture.h"
#include "tools/config_print.h"

namespace fsdptrain::tools {
namespace {

using data::TemporaryFolder;

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
    std::vector<std::jthread> runs;
    for (int run = 0; run < kRuns; ++run) {
      runs.emplace_back([&] {
        start.arrive_and_wait();
        try {
          RunFolder::create(config);
          ++made;
        } catch (const ConfigError&) {
          ++refused;
        }
      });
    }
    runs.clear();
    CHECK(made == 1);
    CHECK(refused == kRuns - 1);
    CHECK(data::read_file(config.run.dir + "/config.toml") == to_toml(config));
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
