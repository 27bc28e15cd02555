#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/comm/nccl/fake_ranks.h"
#include "tests/support/schedule_table.h"

// Steps without one of their waits, for each of them. Orders are those that the program makes,
// whatever the hosts happened to see, so one order of the fake stands for all.
namespace fsdptrain::testing {
namespace {

constexpr int kNumRanks = 2;

// Of the calls of a device that order something: those from `begin` on, up to `end`.
struct Calls {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Outcome {
  std::vector<fakecuda::OrderingCall> calls;
  // Of the second step, by rank.
  std::vector<Calls> step;
  std::vector<std::vector<std::uint32_t>> orders;
  std::vector<fakecuda::Report> reports;
  // By rank; empty of one that failed.
  std::vector<std::vector<std::vector<double>>> chunks;
};

Outcome run(const ShardedSchedule& schedule, std::optional<fakecuda::DroppedCall> dropped = {}) {
  Outcome outcome;
  outcome.step.resize(kNumRanks);
  outcome.chunks.resize(kNumRanks);
  FakeRanks ranks(kNumRanks, 0, {.streams = schedule.streams}, {.dropped_call = dropped}, false);
  ranks.try_run([&](comm::World& world) {
    const auto index = static_cast<std::size_t>(world.rank());
    const auto now = [&] { return ranks.session().num_ordering_calls(world.rank()) + 1; };
    ScheduledRank rank(world, schedule);
    rank.step();
    outcome.step[index].begin = now();
    rank.step();
    outcome.step[index].end = now();
    rank.step();
    outcome.chunks[index] = rank.chunks();
  });
  ranks.session().finish();
  outcome.calls = ranks.session().ordering_calls();
  outcome.orders = ranks.session().orders();
  outcome.reports = ranks.session().reports();
  return outcome;
}

const std::string& text_of(const Outcome& outcome, fakecuda::DroppedCall call) {
  const auto found = std::ranges::find_if(outcome.calls, [&](const fakecuda::OrderingCall& other) {
    return other.device == call.device && --call.number == 0;
  });
  REQUIRE(found != outcome.calls.end());
  return found->text;
}

// How many operations are ordered otherwise; nothing if the last one of a stream is.
std::optional<std::size_t> num_otherwise(const Outcome& a, const Outcome& b) {
  if (a.orders.size() != b.orders.size()) {
    return std::nullopt;
  }
  std::size_t num = 0;
  std::set<std::uint32_t> differ;
  for (std::size_t i = 0; i < a.orders.size(); ++i) {
    if (a.orders[i] == b.orders[i]) {
      differ.erase(a.orders[i].front());
    } else {
      differ.insert(a.orders[i].front());
      ++num;
    }
  }
  return differ.empty() ? std::optional(num) : std::nullopt;
}

// What becomes of the steps without a wait.
std::string verdict(const Outcome& whole, const Outcome& without) {
  if (!without.reports.empty()) {
    return "reported";
  }
  if (without.chunks != whole.chunks) {
    return "other results";
  }
  const auto num = num_otherwise(whole, without);
  if (!num) {
    return "NOT SEEN";
  }
  return *num == 0 ? "implied" : fmt::format("implied {} operations later", *num);
}

bool is_wait(const std::string& text) {
  return text.find(" waits for ") != std::string::npos;
}

std::string expected_list() {
  std::ifstream file(FSDPTRAIN_DROPPED_WAITS);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::vector<const char*> kSchedules = {"plain", "recompute", "accumulation without sync",
                                             "one stream of communication"};

}  // namespace

TEST_SUITE("shard/dropped waits") {
  TEST_CASE("each wait of a step is missed where it is left out, or implied by the others") {
    std::string list;
    for (const char* const name : kSchedules) {
      const ShardedSchedule schedule = schedule_named(name);
      const Outcome whole = run(schedule);
      CHECK_MESSAGE(whole.reports.empty(), fakecuda::describe_all(whole.reports));
      std::map<std::pair<std::string, std::string>, int> counts;
      std::uint64_t num_waits = 0;
      for (std::uint64_t number = whole.step[0].begin; number < whole.step[0].end; ++number) {
        const std::string& text = text_of(whole, {0, number});
        if (is_wait(text)) {
          ++counts[{text, verdict(whole, run(schedule, fakecuda::DroppedCall{0, number}))}];
          ++num_waits;
        }
      }
      list += fmt::format("{}: {} waits\n", name, num_waits);
      for (const auto& [line, count] : counts) {
        list += fmt::format("  {} x {}: {}\n", count, line.first, line.second);
      }
    }
    CHECK(list.find("NOT SEEN") == std::string::npos);
    CHECK(list == expected_list());
  }

  TEST_CASE("so is each event and each wait on all ranks, in a campaign") {
    if (std::getenv("FAKECUDA_ALL_CALLS") == nullptr) {
      MESSAGE("SKIPPED, nothing was tested: FAKECUDA_ALL_CALLS is not in the environment");
      return;
    }
    for (const ShardedSchedule& schedule : all_schedules()) {
      CAPTURE(schedule.name);
      const Outcome whole = run(schedule);
      for (int device = 0; device < kNumRanks; ++device) {
        const Calls step = whole.step[static_cast<std::size_t>(device)];
        for (std::uint64_t number = step.begin; number < step.end; ++number) {
          const fakecuda::DroppedCall call{device, number};
          CHECK_MESSAGE(verdict(whole, run(schedule, call)) != "NOT SEEN", text_of(whole, call));
        }
      }
    }
  }
}

}  // namespace fsdptrain::testing
