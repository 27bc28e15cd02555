#include <cmath>
#include <map>

#include <doctest/doctest.h>

#include "tests/support/checkpoint_run.h"
#include "tests/support/memory_files.h"

// What any number of ranks has saved is loaded by any other.
namespace fsdptrain::testing {
namespace {

using checkpoint::load_newest;
using checkpoint::Saver;

const std::vector<int> kNumsRanks = {1, 2, 3, 4, 5, 7, 8};
const std::filesystem::path kFolder = "/checkpoints";

// Trains `steps` from `from` on and returns all there is on rank 0; saves first or loads first.
struct Program {
  Mode mode = Mode::Sharded;
  int num_ranks = 1;
  int from = 0;
  int steps = 0;
  bool loads = false;
  bool saves = false;

  Values run(MemoryFiles& files) const {
    Values values;
    comm::run_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
      // Another beginning, so that what is not loaded shows.
      CheckpointRun program(world, mode, loads ? 77 : 5);
      if (loads) {
        const auto loaded = load_newest(files, world, program.state(), kFolder);
        REQUIRE(loaded);
        CHECK(loaded->step == from);
        CHECK(loaded->skipped.empty());
        CHECK(loaded->differences.empty());
      }
      for (int step = from; step < from + steps; ++step) {
        program.train_step(step);
      }
      if (saves) {
        Saver saver(files, world, program.state(), {.folder = kFolder, .async = false});
        saver.save(from + steps);
        REQUIRE(saver.last_saved());
      }
      Values of_rank = all_state_of(program);
      if (world.rank() == 0) {
        values = std::move(of_rank);
      }
    });
    return values;
  }
};

double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  REQUIRE(a.size() == b.size());
  for (const auto& [name, values] : a) {
    const std::vector<double>& others = b.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i] - others[i]) / (1 + std::abs(values[i])));
    }
  }
  return largest;
}

void expect_loaded(Mode mode, int from, int to, MemoryFiles& files, const Values& saved) {
  CAPTURE(from);
  CAPTURE(to);
  const Values loaded = Program{.mode = mode, .num_ranks = to, .from = 2, .loads = true}.run(files);
  CHECK(num_different_bits(without_steps(saved), without_steps(loaded)) == 0);
  for (const auto& [name, value] : loaded) {
    if (name.starts_with("step ")) {
      CHECK_MESSAGE(value[0] == 2, name);
    }
  }
}

void expect_same_state(Mode mode) {
  std::map<int, std::unique_ptr<MemoryFiles>> files;
  std::map<int, Values> saved;
  for (const int num_ranks : kNumsRanks) {
    files[num_ranks] = std::make_unique<MemoryFiles>();
    saved[num_ranks] = Program{.mode = mode, .num_ranks = num_ranks, .steps = 2, .saves = true}.run(
        *files[num_ranks]);
    CHECK(saved[num_ranks].size() > 40);
  }
  for (const int from : kNumsRanks) {
    for (const int to : kNumsRanks) {
      expect_loaded(mode, from, to, *files[from], saved[from]);
    }
  }
}

// On numbers of ranks whose sums are exact.
void expect_same_steps(Mode mode) {
  MemoryFiles none;
  const Values whole = Program{.mode = mode, .num_ranks = 1, .steps = 22}.run(none);
  for (const int from : {1, 2, 4}) {
    MemoryFiles files;
    Program{.mode = mode, .num_ranks = from, .steps = 2, .saves = true}.run(files);
    for (const int to : {1, 2, 4}) {
      CAPTURE(from);
      CAPTURE(to);
      const Values resumed =
          Program{.mode = mode, .num_ranks = to, .from = 2, .steps = 20, .loads = true}.run(files);
      CHECK(num_different_bits(without_steps(whole), without_steps(resumed)) == 0);
    }
  }
}

TEST_SUITE("checkpoint/any_to_any") {
  TEST_CASE("a sharded state is the same bits on any number of ranks") {
    expect_same_state(Mode::Sharded);
  }
  TEST_CASE("a replicated state is the same bits on any number of ranks") {
    expect_same_state(Mode::Replicated);
  }
  TEST_CASE("a state of mixed dtypes is the same bits on any number of ranks") {
    expect_same_state(Mode::MixedDTypes);
  }
  TEST_CASE("a state with frozen parameters is the same bits on any number of ranks") {
    expect_same_state(Mode::Frozen);
  }
  TEST_CASE("a state with tied parameters is the same bits on any number of ranks") {
    expect_same_state(Mode::Tied);
  }

  TEST_CASE("a replicated state and a sharded one load each other") {
    MemoryFiles files;
    const Values saved =
        Program{.mode = Mode::Replicated, .num_ranks = 3, .steps = 2, .saves = true}.run(files);
    const Values loaded =
        Program{.mode = Mode::Sharded, .num_ranks = 4, .from = 2, .loads = true, .saves = true}.run(
            files);
    CHECK(num_different_bits(without_steps(saved), without_steps(loaded)) == 0);
    const Values back =
        Program{.mode = Mode::Replicated, .num_ranks = 2, .from = 2, .loads = true}.run(files);
    CHECK(num_different_bits(without_steps(saved), without_steps(back)) == 0);
  }

  TEST_CASE("steps of a sharded run behind a load are the bits of one without interruption") {
    expect_same_steps(Mode::Sharded);
  }
  TEST_CASE("steps of a replicated run behind a load are the bits of one without interruption") {
    expect_same_steps(Mode::Replicated);
  }
  TEST_CASE("steps with tied parameters behind a load are the bits of one without interruption") {
    expect_same_steps(Mode::Tied);
  }

  TEST_CASE("steps in float64 behind a load agree to 1e-12 on any number of ranks") {
    const int steps = 20;
    MemoryFiles none;
    const Values whole =
        Program{.mode = Mode::Float64, .num_ranks = 1, .steps = 2 + steps}.run(none);
    for (const int num_ranks : {3, 5, 7}) {
      CAPTURE(num_ranks);
      MemoryFiles files;
      Program{.mode = Mode::Float64, .num_ranks = num_ranks, .steps = 2, .saves = true}.run(files);
      const Values resumed = Program{.mode = Mode::Float64,
                                     .num_ranks = 8 - num_ranks,
                                     .from = 2,
                                     .steps = steps,
                                     .loads = true}
                                 .run(files);
      CHECK(largest_difference(without_steps(whole), without_steps(resumed)) < 1e-12);
    }
  }
}

}  // namespace
}  // namespace fsdptrain::testing
