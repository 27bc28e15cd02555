#include "tools/run/run_checkpoints.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/run_ranks.h"
#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"
#include "tools/train/training_rank.h"

namespace fsdptrain::tools {
namespace {

using doctest::Contains;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

Config tiny() {
  Config config;
  config.model.num_layers = 1;
  config.model.num_heads = 1;
  config.model.embed_dim = 8;
  config.model.max_seq_len = 8;
  return config;
}

// What one rank of a run saves with.
struct Saving {
  Saving(comm::World& world, const CheckpointConfig& config, std::optional<fs::path> folder,
         std::function<void()> check_lock = {})
      : files(checkpoint::make_real_file_system()),
        rank(tiny(), world.group()),
        checkpoints(*files, world, {.model = &rank.sharded(), .optimizer = &rank.optimizer()},
                    {.config = config,
                     .folder = std::move(folder),
                     .resumed_from = std::nullopt,
                     .check_lock = std::move(check_lock)},
                    reporter) {}

  std::unique_ptr<checkpoint::FileSystem> files;
  TrainingRank rank;
  Reporter reporter;
  RunCheckpoints checkpoints;
};

bool exists(const fs::path& folder, std::int64_t step) {
  return fs::exists(folder / ("step-0000000" + std::to_string(step)) / "manifest.json");
}

TEST_SUITE_BEGIN("tools/run/run_checkpoints");

TEST_CASE(
    "ranks agree on a signal that one has seen, and on what is due, also while one is saved") {
  const TemporaryFolder folder;
  comm::run_ranks({.num_ranks = 3}, [&](comm::World& world) {
    Saving saving(world, {.every = 2}, folder / "c");
    for (std::int64_t step = 1; step <= 4; ++step) {
      const int mine = step == 4 && world.rank() == 1 ? 15 : 0;
      const auto boundary = saving.checkpoints.meet(mine, step);
      CHECK(boundary.is_due == (step % 2 == 0));
      CHECK(boundary.signal == (step == 4 ? 15 : 0));
      // The next ones are met while it is written, or soon behind that.
      if (step == 2) {
        saving.checkpoints.save(step);
      }
    }
    CHECK(saving.checkpoints.save_last(4, true));
  });
  CHECK(exists(folder / "c", 2));
  CHECK(exists(folder / "c", 4));
}

TEST_CASE("what is due by time is said by the clock of rank 0") {
  const TemporaryFolder folder;
  comm::run_ranks({.num_ranks = 2}, [&](comm::World& world) {
    Saving always(world, {.every_minutes = 1e-9}, folder / "a");
    Saving never(world, {.every_minutes = 1e6}, folder / "n");
    CHECK(always.checkpoints.meet(0, 1).is_due);
    CHECK_FALSE(never.checkpoints.meet(0, 1).is_due);
  });
}

TEST_CASE("without a folder nothing is due and nothing is saved") {
  comm::run_ranks({.num_ranks = 2}, [&](comm::World& world) {
    Saving saving(world, {.every = 1}, std::nullopt);
    const auto boundary = saving.checkpoints.meet(world.rank(), 1);
    CHECK(boundary.signal == 1);
    CHECK_FALSE(boundary.is_due);
    CHECK_FALSE(saving.checkpoints.save_last(1, true));
  });
}

TEST_CASE("a checkpoint that fails ends the run where it is to, or at the limit, on all ranks") {
  const TemporaryFolder folder;
  testing::write_file(folder / "file", "in the way");
  for (const bool async : {false, true}) {
    CAPTURE(async);
    comm::run_ranks({.num_ranks = 2}, [&](comm::World& world) {
      Saving stops(world, {.every = 1, .async = async, .on_error = "stop"}, folder / "file/c");
      CHECK_THROWS_AS(stops.checkpoints.save(1), IoError);
      CHECK_THROWS_AS(stops.checkpoints.save_last(2, false), IoError);
      Saving goes_on(world, {.every = 1, .async = async, .error_limit = 3}, folder / "file/c");
      goes_on.checkpoints.save(1);
      CHECK_FALSE(goes_on.checkpoints.save_last(2, false));
      CHECK_THROWS_WITH_AS(goes_on.checkpoints.save(3), Contains("file"), IoError);
      Saving ends(world, {.every = 1, .async = async, .error_limit = 3}, folder / "file/c");
      CHECK_THROWS_WITH_AS(ends.checkpoints.save_last(2, true), Contains("file"), IoError);
    });
  }
}

TEST_CASE("a checkpoint that comes to be begins the count of failures anew") {
  const TemporaryFolder folder;
  comm::run_ranks({.num_ranks = 2}, [&](comm::World& world) {
    Saving saving(world, {.every = 1, .async = false, .error_limit = 2}, folder / "c");
    const auto on_rank_0 = [&](const auto& action) {
      world.control().issue(comm::barrier()).wait();
      if (world.rank() == 0) {
        action();
      }
      world.control().issue(comm::barrier()).wait();
    };
    for (std::int64_t step = 1; step <= 6; step += 2) {
      on_rank_0([&] {
        fs::remove_all(folder / "c");
        testing::write_file(folder / "c", "in the way");
      });
      saving.checkpoints.save(step);
      on_rank_0([&] { fs::remove(folder / "c"); });
      saving.checkpoints.save(step + 1);
      CHECK(exists(folder / "c", step + 1));
    }
  });
}

TEST_CASE("a run that has lost its folder ends, whatever failed checkpoints may do") {
  const TemporaryFolder folder;
  comm::run_ranks({.num_ranks = 1}, [&](comm::World& world) {
    Saving saving(world, {.every = 1, .async = false, .error_limit = 99}, folder / "c",
                  [] { fail<IoError>("another has it"); });
    try {
      saving.checkpoints.save(1);
      FAIL("it goes on");
    } catch (const IoError&) {
      FAIL("it may be passed over");
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find("another has it") != std::string::npos);
    }
  });
  CHECK_FALSE(exists(folder / "c", 1));
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
