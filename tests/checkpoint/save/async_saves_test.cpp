#include <chrono>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/checkpoint_run.h"
#include "tests/support/faulty_files.h"
#include "tests/support/memory_files.h"
#include "tests/support/saved_values.h"

// Threads that write while others train, in many orders. No result depends on how long a delay is.
namespace fsdptrain::testing {
namespace {

const std::filesystem::path kFolder = "/checkpoints";
constexpr int kNumSaves = 10;
constexpr int kNumRanks = 2;

// Of one thread: none, a turn for others, or up to some hundred microseconds.
class Delays {
 public:
  explicit Delays(std::uint64_t seed) : random_(seed) {}

  void pass() {
    const auto drawn = random_() % 400;
    if (drawn > 300) {
      std::this_thread::sleep_for(std::chrono::microseconds(2 * (drawn - 300)));
    } else if (drawn > 200) {
      std::this_thread::yield();
    }
  }
  int up_to(int last) {
    return static_cast<int>(random_() % (static_cast<std::uint64_t>(last) + 1));
  }

 private:
  std::mt19937_64 random_;
};

// An update by the gradients that there are.
void update(CheckpointRun& program) {
  program.optimizer->step(program.sharded->chunks(), 1e-2, {});
  program.sharded->bump_epoch();
  program.average->update(program.sharded->chunks());
}

// Saves after a number of updates that nobody planned, and trains on; on rank 0 what was to be
// saved.
std::vector<Values> train_and_save(comm::World& world, checkpoint::FileSystem& files,
                                   std::uint64_t seed) {
  CheckpointRun program(world, Mode::Sharded);
  // All ranks poll at the same points.
  Delays plan(seed);
  Delays delays(100 * seed + static_cast<std::uint64_t>(world.rank()));
  checkpoint::Saver saver(files, world, program.state(), {.folder = kFolder, .keep_last = 0});
  std::vector<Values> at_save;
  program.train_step(0);
  for (int save = 1; save <= kNumSaves; ++save) {
    update(program);
    at_save.push_back(without_steps(all_state_of(program)));
    saver.save(save);
    for (int i = plan.up_to(2); i >= 0; --i) {
      delays.pass();
      update(program);
      delays.pass();
      saver.poll();
    }
  }
  saver.finish();
  return at_save;
}

TEST_SUITE("checkpoint/save/async_saves") {
  TEST_CASE("each of ten saves has the bits of its step, whenever threads write, in 8 orders") {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      CAPTURE(seed);
      MemoryFiles files;
      Delays delays(1000 + seed);
      // Within a lock of the files: one thread at a time asks.
      FaultyFiles slow(files, {.counts = [&delays](FileCall, const auto&) {
                         delays.pass();
                         return false;
                       }});
      std::vector<Values> at_save;
      comm::run_ranks({.num_ranks = kNumRanks, .delay_seed = seed}, [&](comm::World& world) {
        std::vector<Values> of_rank = train_and_save(world, slow, seed);
        if (world.rank() == 0) {
          at_save = std::move(of_rank);
        }
      });
      for (int save = 1; save <= kNumSaves; ++save) {
        CAPTURE(save);
        CHECK(num_different_bits(at_save.at(static_cast<std::size_t>(save) - 1),
                                 saved_values(files, kFolder, save)) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace fsdptrain::testing
