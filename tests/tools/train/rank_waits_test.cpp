#include "tools/train/rank_waits.h"

#include <array>
#include <numeric>

#include <doctest/doctest.h>

#include "comm/clock.h"
#include "comm/run_ranks.h"

namespace fsdptrain::tools {
namespace {

using namespace std::chrono_literals;

// As long as other ranks need to come, and more.
void be_busy() {
  const comm::Deadline end(comm::monotonic_clock(), 20ms);
  while (!end.passed()) {
  }
}

// Every rank but `slow` comes at once to a few sums of gradients.
void add_up(comm::World& world, int slow) {
  const Tensor gradient = Tensor::full({100}, 1);
  for (int round = 0; round < 5; ++round) {
    if (world.rank() == slow) {
      be_busy();
    }
    world.group().issue(comm::all_reduce(gradient)).wait();
  }
}

}  // namespace

TEST_SUITE("tools/train/rank_waits") {
  TEST_CASE("the straggler is the rank that was waited for longest, not the one that waited") {
    const std::array<std::int64_t, 3> waited{2'000'000'000, 500'000'000, 0};
    const std::array<std::int64_t, 3> waited_for{0, 1'000'000'000, 1'500'000'000};
    const WaitSummary summary = summarize(waited, waited_for);
    CHECK(summary.wait_seconds == std::vector<double>{2, 0.5, 0});
    CHECK(summary.waited_for_seconds == std::vector<double>{0, 1, 1.5});
    CHECK(summary.straggler == 2);
  }

  TEST_CASE("of ranks that were waited for equally long the first is the straggler") {
    const std::array<std::int64_t, 3> times{1, 7, 7};
    CHECK(summarize(times, times).straggler == 1);
  }

  TEST_CASE("there is no straggler where nobody waited") {
    const std::array<std::int64_t, 3> times{};
    CHECK_FALSE(summarize(times, times).straggler);
  }

  TEST_CASE("a rank that is slow on purpose is the straggler, on all ranks, and the others wait") {
    for (const int slow : {0, 2}) {
      CAPTURE(slow);
      comm::run_ranks({.num_ranks = 3}, [slow](comm::World& world) {
        RankWaits waits(world);
        add_up(world, slow);
        const WaitSummary summary = waits.summary().value();
        CHECK(summary.straggler == slow);
        REQUIRE(summary.wait_seconds.size() == 3);
        REQUIRE(summary.waited_for_seconds.size() == 3);
        const auto total = [](const std::vector<double>& times) {
          return std::accumulate(times.begin(), times.end(), 0.0);
        };
        // Every wait of one rank is for another.
        CHECK(total(summary.wait_seconds) == doctest::Approx(total(summary.waited_for_seconds)));
        CHECK(summary.wait_seconds[1] > 0);
        CHECK(summary.waited_for_seconds[static_cast<std::size_t>(slow)] > 0);
      });
    }
  }

  TEST_CASE("an interval knows nothing of those before it") {
    comm::run_ranks({.num_ranks = 3}, [](comm::World& world) {
      RankWaits waits(world);
      add_up(world, 2);
      waits.restart();
      const WaitSummary empty = waits.summary().value();
      CHECK_FALSE(empty.straggler);
      CHECK(empty.wait_seconds == std::vector<double>{0, 0, 0});
      add_up(world, 1);
      CHECK(waits.summary().value().straggler == 1);
    });
  }

  TEST_CASE("a rank that is alone waits for nobody and is no straggler") {
    comm::run_ranks({.num_ranks = 1}, [](comm::World& world) {
      RankWaits waits(world);
      add_up(world, 0);
      const WaitSummary summary = waits.summary().value();
      CHECK_FALSE(summary.straggler);
      CHECK(summary.wait_seconds == std::vector<double>{0});
      CHECK(summary.waited_for_seconds == std::vector<double>{0});
    });
  }
}

}  // namespace fsdptrain::tools
