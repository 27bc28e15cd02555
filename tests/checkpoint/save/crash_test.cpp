#include <atomic>
#include <cstdlib>

#include <doctest/doctest.h>

#include "checkpoint/folder/names.h"
#include "checkpoint/folder/scan.h"
#include "checkpoint/folder/staging.h"
#include "checkpoint/load/reader.h"
#include "checkpoint/save/save_job.h"
#include "runtime/base/error.h"
#include "tests/support/checkpoint_run.h"
#include "tests/support/faulty_files.h"
#include "tests/support/memory_files.h"

// A save that is cut off anywhere leaves a checkpoint to load: the new one or the one before; one
// that a rank cannot begin ends on all of them.
namespace fsdptrain::testing {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::load_newest;
using checkpoint::Saver;

const std::filesystem::path kFolder = "/run/checkpoints";

// FSDPTRAIN_CHECKPOINT_CAMPAIGN multiplies the number of seeds.
std::uint64_t seeds(std::uint64_t few, std::uint64_t many) {
  return std::getenv("FSDPTRAIN_CHECKPOINT_CAMPAIGN") == nullptr ? few : many;
}

// Saves step 1 in peace, then step 2, again or as a new one, while all ranks or one of them die at
// a call.
struct CutSave {
  int num_ranks = 2;
  // -1: all.
  int dying_rank = -1;
  std::int64_t at_call = 0;
  std::int64_t keep_last = 1;
  // There is a step 2 already.
  bool replaces = false;
  bool async = false;

  MemoryFiles memory = {};
  bool has_struck = false;
  std::atomic<int> num_ranks_saved = 0;

  // A checkpoint of step 2 was there at some time.
  bool was_saved() const { return replaces || num_ranks_saved > 0; }

  void run() {
    std::atomic<bool> armed = false;
    FaultyFiles faulty(memory, {.kind = FileFault::Kind::Kill,
                                .at_call = at_call,
                                .counts = [&](FileCall, const auto&) { return armed.load(); }});
    memory.make_folder("/run");
    memory.sync_folder("/");
    comm::run_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      const bool dies = dying_rank < 0 || dying_rank == world.rank();
      checkpoint::FileSystem& files = dies ? static_cast<checkpoint::FileSystem&>(faulty) : memory;
      Saver saver(files, world, program.state(),
                  {.folder = kFolder,
                   .async = async,
                   .keep_last = keep_last,
                   .visible_within = {},
                   .warn = [](const std::string&) {}});
      program.progress.value = 1;
      saver.save_and_wait(1);
      if (replaces) {
        program.progress.value = 3;
        saver.save_and_wait(2);
      }
      program.progress.value = 2;
      world.exchange("all are here");
      armed = true;
      try {
        saver.save(2);
        saver.finish();
        ++num_ranks_saved;
      } catch (const std::exception&) {
        CHECK(num_ranks_saved == 0);
      }
    });
    has_struck = faulty.has_struck();
  }
};

// The newest valid one, whose bytes are all read.
std::int64_t newest_step(checkpoint::FileSystem& files) {
  const checkpoint::Scan found = checkpoint::scan(files, kFolder);
  CHECK_MESSAGE(found.invalid.empty(), (found.invalid.empty() ? "" : found.invalid.front()));
  if (found.valid.empty()) {
    return -1;
  }
  CheckpointReader reader =
      CheckpointReader::open(files, kFolder / checkpoint::step_folder_name(found.valid.front()));
  std::vector<std::byte> bytes;
  for (const auto& tensor : reader.manifest().layout.tensors) {
    for (const auto& plane :
         reader.manifest().layout.groups[static_cast<std::size_t>(tensor.group)].planes) {
      bytes.resize(static_cast<std::size_t>(tensor.shape.numel()) * size_of(plane.dtype));
      const CheckpointReader::Want want{.tensor = &tensor,
                                        .plane = plane.name,
                                        .elements = {0, tensor.shape.numel()},
                                        .out = bytes};
      reader.read({&want, 1});
    }
  }
  return found.valid.front();
}

// The next start of the program: it goes on from what there is, and saves.
void expect_goes_on(MemoryFiles& memory, bool was_saved) {
  comm::run_ranks({.num_ranks = 3}, [&](comm::World& world) {
    if (world.rank() == 0) {
      CHECK(checkpoint::sweep(memory, kFolder).empty());
    }
    CheckpointRun program(world, Mode::Sharded, 77);
    const auto loaded = load_newest(memory, world, program.state(), kFolder);
    REQUIRE(loaded);
    CHECK(loaded->skipped.empty());
    CHECK((loaded->step == 2 || (loaded->step == 1 && !was_saved)));
    CHECK((program.progress.value == loaded->step || program.progress.value == 3));
    Saver saver(memory, world, program.state(), {.folder = kFolder, .async = false});
    saver.save(loaded->step + 1);
  });
  // All that was left over is gone.
  CHECK(memory.list(kFolder / checkpoint::kStagingFolder).empty());
  if (memory.kind_of(kFolder / checkpoint::kTrashFolder)) {
    CHECK(memory.list(kFolder / checkpoint::kTrashFolder).empty());
  }
}

void kill_at_every_call(int num_ranks, int dying_rank, bool replaces, bool async) {
  CAPTURE(dying_rank);
  CAPTURE(replaces);
  std::int64_t num_calls = 0;
  for (bool struck = true; struck; ++num_calls) {
    CAPTURE(num_calls);
    CutSave save{.num_ranks = num_ranks,
                 .dying_rank = dying_rank,
                 .at_call = num_calls,
                 .replaces = replaces,
                 .async = async};
    save.run();
    struck = save.has_struck;
    CHECK((save.num_ranks_saved == 0 || save.num_ranks_saved == num_ranks));
    if (!struck) {
      CHECK(save.num_ranks_saved == num_ranks);
      CHECK(newest_step(save.memory) == 2);
    }
    expect_goes_on(save.memory, save.was_saved());
  }
  CHECK(num_calls > 5);
}

void lose_power_at_every_call(bool replaces) {
  bool struck = true;
  for (std::int64_t call = 0; struck; ++call) {
    CAPTURE(call);
    CutSave save{.num_ranks = 1, .at_call = call, .keep_last = 2, .replaces = replaces};
    save.run();
    struck = save.has_struck;
    for (std::uint64_t seed = 0; seed < seeds(8, 300); ++seed) {
      CAPTURE(seed);
      const auto left = save.memory.after_power_loss(seed);
      CHECK(checkpoint::sweep(*left, kFolder).empty());
      const std::int64_t step = newest_step(*left);
      CHECK((step == 2 || (step == 1 && !save.was_saved())));
    }
  }
}

// Has no states to give, once told.
class Unsaveable final : public optim::Optimizer {
 public:
  void step(std::vector<nn::FlatChunk>& /*chunks*/, double /*lr*/,
            const Tensor& /*gradient_scale*/) override {}
  std::vector<optim::State> states() const override {
    check<DeviceError>(!fails, "the device is {}", "lost");
    return {};
  }

  bool fails = false;
};

// The texts of what save() throws on each rank; what it made is gone.
std::vector<std::string> refusals(checkpoint::FileSystem& files, comm::World& world, Saver& saver) {
  std::string text;
  try {
    saver.save(2);
  } catch (const Error& error) {
    text = error.what();
  }
  std::vector<std::string> texts = world.exchange(text);
  if (world.rank() == 0) {
    CHECK(files.list(kFolder / checkpoint::kStagingFolder).empty());
    CHECK(checkpoint::scan(files, kFolder).valid == std::vector<std::int64_t>{1});
  }
  world.exchange("it is looked at");
  return texts;
}

TEST_SUITE("checkpoint/save/crash") {
  TEST_CASE("all ranks die at any call of a save: the last checkpoint loads and the run goes on") {
    kill_at_every_call(2, -1, false, false);
  }
  TEST_CASE("all ranks die at any call of an asynchronous save") {
    kill_at_every_call(2, -1, false, true);
  }
  TEST_CASE("all ranks die at any call of a save that replaces a checkpoint") {
    kill_at_every_call(1, -1, true, false);
  }
  TEST_CASE("rank 0 dies at any call of a save") {
    kill_at_every_call(3, 0, false, true);
  }
  TEST_CASE("a rank that is not the first dies at any call of a save") {
    kill_at_every_call(3, 1, false, true);
  }

  TEST_CASE("a loss of power at any call of a save leaves what was reported, or the one before") {
    lose_power_at_every_call(false);
  }
  TEST_CASE("a loss of power at any call of a save that replaces a checkpoint leaves one of it") {
    lose_power_at_every_call(true);
  }

  TEST_CASE("a rank whose state cannot be had fails the save of all, with its error") {
    for (const int failing : {0, 2}) {
      MemoryFiles files;
      files.make_folder("/run");
      comm::run_ranks({.num_ranks = 3}, [&](comm::World& world) {
        CheckpointRun program(world, Mode::Sharded);
        Unsaveable optimizer;
        checkpoint::TrainingState state = program.state();
        state.optimizer = &optimizer;
        Saver saver(files, world, state, {.folder = kFolder, .async = false});
        saver.save(1);
        optimizer.fails = world.rank() == failing;
        const std::string expected =
            fmt::format("step 2 was not saved: rank {}: the device is lost", failing);
        for (const std::string& text : refusals(files, world, saver)) {
          CHECK(text.starts_with(expected));
        }
        optimizer.fails = false;
        saver.save(3);
        CHECK(saver.last_saved()->step == 3);
      });
    }
  }

  TEST_CASE("a job whose file cannot be made has failed, and can be given up") {
    MemoryFiles files;
    files.make_folder("/run");
    checkpoint::SaveJob job(
        {.files = &files,
         .folder = kFolder,
         .manifest = {},
         .visible_within = {},
         .retention = {},
         .before_commit = {}},
        []() -> checkpoint::RankFile { fail<IoError>("there is no {}", "memory"); });
    CHECK(job.wait_for({}));
    REQUIRE(job.outcome());
    CHECK(job.outcome()->failed);
    CHECK(job.outcome()->text.starts_with("there is no memory"));
    job.give_up(true);
    CHECK(job.wait_for(std::chrono::minutes(1)));
    CHECK(job.outcome());
  }
}

}  // namespace
}  // namespace fsdptrain::testing
