#include <cstddef>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "checkpoint/load/loader.h"
#include "checkpoint/load/reader.h"
#include "checkpoint/save/saver.h"
#include "tests/comm/nccl/fake_ranks.h"
#include "tests/support/memory_files.h"
#include "tests/support/schedule_table.h"
#include "tests/support/state_dicts.h"

// Checkpoints of GPUs that are none, against those of the CPU: the kernels are the same, so the
// bits are, unless a wait is missing, and then that is reported.
namespace fsdptrain::testing {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::Saver;
using Bytes = std::vector<std::vector<std::byte>>;

const std::filesystem::path kFolder = "/checkpoints";

checkpoint::TrainingState state_of(ScheduledRank& rank, optim::WeightAverage& average) {
  return {.model = &rank.sharded(), .optimizer = &rank.optimizer(), .average = &average};
}

// The first half of the schedules' parameters is frozen, and so in no moment.
ShardedSchedule schedule() {
  return {.name = "three micro-batches",
          .model = {.rules = {{.pattern = "chain.blocks.1.*", .trainable = false}}},
          .forwards_and_backwards = schedules::micro_batches(3)};
}

// Saves after two steps, and trains on while the file is written.
void train_and_save(comm::World& world, checkpoint::FileSystem& files) {
  const ShardedSchedule plan = schedule();
  ScheduledRank rank(world, plan);
  optim::WeightAverage average(rank.sharded().chunks(), 0.9);
  Saver saver(files, world, state_of(rank, average), {.folder = kFolder});
  for (int step = 0; step < 2; ++step) {
    rank.step();
    average.update(rank.sharded().chunks());
  }
  saver.save(2);
  rank.step();
  average.update(rank.sharded().chunks());
  saver.finish();
}

void load_and_save(comm::World& world, checkpoint::FileSystem& from, checkpoint::FileSystem& to) {
  const ShardedSchedule plan = schedule();
  ScheduledRank rank(world, plan);
  optim::WeightAverage average(rank.sharded().chunks(), 0.9);
  rank.step();
  CHECK(checkpoint::load_newest(from, world, state_of(rank, average), kFolder)->step == 2);
  Saver(to, world, state_of(rank, average), {.folder = kFolder, .async = false}).save(2);
}

// Of all planes of all tensors.
Bytes saved_bytes(checkpoint::FileSystem& files) {
  CheckpointReader reader(files, kFolder / "step-00000002",
                          CheckpointReader::open(files, kFolder / "step-00000002").manifest());
  Bytes all;
  for (const auto& tensor : reader.manifest().layout.tensors) {
    CHECK((tensor.step.value_or(2) == 2 || tensor.name == "unused"));
    for (const auto& plane :
         reader.manifest().layout.groups[static_cast<std::size_t>(tensor.group)].planes) {
      auto& bytes = all.emplace_back();
      bytes.resize(static_cast<std::size_t>(tensor.shape.numel()) * size_of(plane.dtype));
      const CheckpointReader::Want want{.tensor = &tensor,
                                        .plane = plane.name,
                                        .elements = {0, tensor.shape.numel()},
                                        .out = bytes};
      reader.read({&want, 1});
    }
  }
  return all;
}

// Behind two steps.
WholeState train_whole(comm::World& world, bool on_all_ranks = false) {
  const ShardedSchedule plan = schedule();
  ScheduledRank rank(world, plan);
  optim::WeightAverage average(rank.sharded().chunks(), 0.9);
  for (int step = 0; step < 2; ++step) {
    rank.step();
    average.update(rank.sharded().chunks());
  }
  return whole_state_of(world, state_of(rank, average), {.on_all_ranks = on_all_ranks});
}

WholeState load_whole(comm::World& world, const WholeState& whole) {
  const ShardedSchedule plan = schedule();
  ScheduledRank rank(world, plan);
  optim::WeightAverage average(rank.sharded().chunks(), 0.9);
  rank.step();
  load_whole_state(world, state_of(rank, average), whole);
  return whole_state_of(world, state_of(rank, average));
}

Bytes bytes_of(const WholeState& whole) {
  Bytes bytes;
  for (const WholeEntry& one : whole) {
    bytes.push_back(one.bytes);
  }
  return bytes;
}

// Of rank 0.
WholeState whole_of_cpu() {
  WholeState whole;
  comm::run_ranks({.num_ranks = 2}, [&](comm::World& world) {
    WholeState of_rank = train_whole(world);
    if (world.rank() == 0) {
      whole = std::move(of_rank);
    }
  });
  return whole;
}

TEST_SUITE("checkpoint on a device") {
  TEST_CASE("whole tensors of GPUs are the bits of the CPU's, in any order") {
    const Bytes expected = bytes_of(whole_of_cpu());
    CHECK(expected.size() > 10);
    in_all_orders([&](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([&](comm::World& world) {
        const bool on_all_ranks = seed % 2 == 1;
        const Bytes got = bytes_of(train_whole(world, on_all_ranks));
        CHECK((got == expected || (world.rank() > 0 && !on_all_ranks)));
      });
      ranks.expect_clean();
    });
  }

  TEST_CASE("whole tensors of the CPU come to GPUs as the same bits, in any order") {
    const WholeState whole = whole_of_cpu();
    in_all_orders([&](std::uint64_t seed) {
      FakeRanks ranks(3, seed);
      ranks.run([&](comm::World& world) {
        const WholeState loaded = load_whole(world, whole);
        CHECK((world.rank() > 0 || bytes_of(loaded) == bytes_of(whole)));
      });
      ranks.expect_clean();
    });
  }

  TEST_CASE("a save of GPUs that train on has the bits of the CPU's, in any order") {
    MemoryFiles of_cpu;
    comm::run_ranks({.num_ranks = 2}, [&](comm::World& world) { train_and_save(world, of_cpu); });
    const Bytes expected = saved_bytes(of_cpu);
    CHECK(expected.size() > 10);
    in_all_orders([&](std::uint64_t seed) {
      MemoryFiles files;
      FakeRanks ranks(2, seed);
      ranks.run([&](comm::World& world) { train_and_save(world, files); });
      CHECK(saved_bytes(files) == expected);
      ranks.expect_clean();
    });
  }

  TEST_CASE("what the CPU saved is the same bits on GPUs, in any order") {
    MemoryFiles of_cpu;
    comm::run_ranks({.num_ranks = 2}, [&](comm::World& world) { train_and_save(world, of_cpu); });
    const Bytes expected = saved_bytes(of_cpu);
    in_all_orders([&](std::uint64_t seed) {
      MemoryFiles files;
      FakeRanks ranks(3, seed);
      ranks.run([&](comm::World& world) { load_and_save(world, of_cpu, files); });
      CHECK(saved_bytes(files) == expected);
      ranks.expect_clean();
    });
  }
}

}  // namespace
}  // namespace fsdptrain::testing
