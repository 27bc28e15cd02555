#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "tests/comm/nccl/fake_ranks.h"
#include "tests/support/schedule_table.h"

// Schedules of a sharded model on a GPU that is none, against the same on the CPU: the kernels are
// the same, so the bits are, unless a wait is missing, and then that is reported.
namespace fsdptrain::testing {
namespace {

constexpr int kNumRanks = 2;

using Chunks = std::vector<std::vector<double>>;

// As train_by().
Chunks train(comm::World& world, const ShardedSchedule& schedule) {
  ScheduledRank rank(world, schedule);
  const MemoryCounters& counters = current_context().allocator(world.group().device()).counters();
  std::int64_t raw_allocations = 0;
  for (int step = 0; step < 3; ++step) {
    rank.step();
    // Neither of the device nor of NCCL.
    CHECK((step == 0 || !schedule.keeps_to_plan || counters.raw_allocations == raw_allocations));
    raw_allocations = counters.raw_allocations;
  }
  CHECK((!schedule.keeps_to_plan || rank.sharded().pool().num_unplanned() == 0));
  return rank.chunks();
}

// What each rank has.
std::vector<Chunks> on_cpu(const ShardedSchedule& schedule) {
  std::vector<Chunks> chunks(kNumRanks);
  comm::run_ranks({.num_ranks = kNumRanks}, [&](comm::World& world) {
    chunks[static_cast<std::size_t>(world.rank())] = train(world, schedule);
  });
  return chunks;
}

void expect_same_bits(const ShardedSchedule& schedule) {
  const std::vector<Chunks> expected = on_cpu(schedule);
  in_all_orders([&](std::uint64_t seed) {
    FakeRanks ranks(kNumRanks, seed, {.streams = schedule.streams});
    std::vector<Chunks> chunks(kNumRanks);
    ranks.run([&](comm::World& world) {
      chunks[static_cast<std::size_t>(world.rank())] = train(world, schedule);
    });
    CHECK(chunks == expected);
    ranks.expect_clean();
  });
}

}  // namespace

TEST_SUITE("shard/sharded_model on a device") {
  TEST_CASE("every schedule is that of the CPU, bit for bit, in any order") {
    for (const ShardedSchedule& schedule : all_schedules()) {
      CAPTURE(schedule.name);
      expect_same_bits(schedule);
    }
  }
}

}  // namespace fsdptrain::testing
