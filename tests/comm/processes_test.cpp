#include <csignal>
#include <fmt/format.h>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/flight/reader.h"
#include "tests/support/rank_processes.h"

// Ranks that are processes of one host, and what becomes of the others when one ends.
namespace fsdptrain::comm {
namespace {

using testing::Backend;
using testing::ChildProcess;
using testing::RankProcesses;

constexpr Backend kBackends[] = {Backend::Shm, Backend::Gloo};

bool has(const ChildProcess::End& end, const std::string& part) {
  return end.output.find(part) != std::string::npos;
}

// In the tag of the collective that the others are in. Of a process that ends, what it sent last
// may be lost on its way over the network: then they are still in the collective before.
std::string group_of_tag(Backend backend) {
  return backend == Backend::Gloo ? "tag root 0 group" : "tag root 0 group 8";
}

// The ranks but the one that fails end with an error that has all of `parts`; what they said.
std::string check_others(RankProcesses& ranks, const std::vector<std::string>& parts) {
  std::string said;
  for (const int rank : {0, 2}) {
    CAPTURE(rank);
    const ChildProcess::End end = ranks.wait(rank);
    CAPTURE(end.output);
    CHECK(end.code == 3);
    for (const std::string& part : parts) {
      CHECK(has(end, part));
    }
    said += end.output;
  }
  return said;
}

// All of three ranks but the one that was killed say so.
void check_killed(RankProcesses& ranks, int victim) {
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    const ChildProcess::End end = ranks.wait(rank);
    CAPTURE(end.output);
    CHECK(end.code == (rank == victim ? 128 + SIGKILL : 3));
    CHECK((rank == victim || has(end, fmt::format("rank {} died before", victim))));
  }
}

}  // namespace

TEST_SUITE("comm/processes") {
  TEST_CASE("sums go through, in shared and in plain memory") {
    for (const Backend backend : kBackends) {
      CAPTURE(testing::name_of(backend));
      for (const int num_ranks : {1, 2, 3}) {
        RankProcesses ranks(backend, "sum", num_ranks);
        for (int rank = 0; rank < num_ranks; ++rank) {
          const ChildProcess::End end = ranks.wait(rank);
          CHECK_MESSAGE(end.code == 0, end.output);
        }
      }
    }
  }

  TEST_CASE("a rank that is killed before, inside or after a collective ends the others by name") {
    for (const Backend backend : kBackends) {
      CAPTURE(testing::name_of(backend));
      for (const std::string when : {"before", "inside", "after"}) {
        CAPTURE(when);
        RankProcesses ranks(backend, "die-" + when, 3);
        check_others(ranks,
                     {"rank 1 died before", group_of_tag(backend), "group 'world'", "sequence"});
        CHECK(ranks.wait(1).code == 128 + SIGKILL);
        // What it did last can still be read.
        const FlightSnapshot ring = read_flight_ring(ranks.ring(1), "rank 1");
        REQUIRE_FALSE(ring.records.empty());
        const FlightRecord& last = ring.records.back();
        CHECK(last.state == (when == "inside" ? FlightState::Posted : FlightState::Completed));
        CHECK(last.tag.group == (when == "before" ? 0u : 8u));
      }
    }
  }

  TEST_CASE("killed at any step of a collective, no rank leaves the others waiting") {
    for (const Backend backend : kBackends) {
      CAPTURE(testing::name_of(backend));
      for (const std::string scenario : {"sum", "gather"}) {
        for (int victim = 0; victim < 3; ++victim) {
          for (int step = 0; step < 40; step += 5) {
            CAPTURE(scenario);
            CAPTURE(victim);
            CAPTURE(step);
            RankProcesses ranks(backend, fmt::format("{}/{}/{}", scenario, victim, step), 3);
            check_killed(ranks, victim);
          }
        }
      }
    }
  }

  TEST_CASE("killed before a gather that goes through slots, any rank is noticed by all") {
    for (const Backend backend : kBackends) {
      CAPTURE(testing::name_of(backend));
      for (int victim = 0; victim < 3; ++victim) {
        CAPTURE(victim);
        RankProcesses ranks(backend, fmt::format("gather/{}", victim), 3);
        check_killed(ranks, victim);
      }
    }
  }

  TEST_CASE("a rank that ends without a word is named at once") {
    for (const Backend backend : kBackends) {
      CAPTURE(testing::name_of(backend));
      for (const std::string when : {"before", "inside", "after"}) {
        CAPTURE(when);
        RankProcesses ranks(backend, "leave-" + when, 3);
        check_others(ranks, {"rank 1 died before", group_of_tag(backend)});
        CHECK(ranks.wait(1).code == 0);
      }
    }
  }

  TEST_CASE("a rank that throws tells the others why") {
    for (const Backend backend : kBackends) {
      CAPTURE(testing::name_of(backend));
      for (const std::string when : {"before", "inside", "after"}) {
        CAPTURE(when);
        RankProcesses ranks(backend, "throw-" + when, 3);
        check_others(ranks, {"rank 1 failed: no more tokens"});
        const ChildProcess::End end = ranks.wait(1);
        CHECK(end.code == 3);
        CHECK(has(end, "no more tokens"));
      }
    }
  }

  TEST_CASE("a rank that is stopped is named at the timeout") {
    for (const Backend backend : kBackends) {
      CAPTURE(testing::name_of(backend));
      for (const std::string when : {"before", "inside", "after"}) {
        CAPTURE(when);
        RankProcesses ranks(backend, "stop-" + when, 3);
        if (backend == Backend::Shm) {
          check_others(ranks, {"did not end in 0.5 s", "missing: rank 1", "tag root 0 group 8"});
        } else {
          // Ranks that wait for it themselves may be missing too.
          const std::string said =
              check_others(ranks, {"did not end in 0.5 s", "missing: rank", group_of_tag(backend)});
          // The one that looked says whom they wait for.
          CHECK(said.find(", for rank 1") != std::string::npos);
        }
        ranks.send(1, SIGCONT);
        const ChildProcess::End end = ranks.wait(1);
        CAPTURE(end.output);
        CHECK(end.code == 3);
        // gloo resets connections that it ends: what it was told while it stood may be lost.
        CHECK((has(end, "failed: rank") ||
               (backend == Backend::Gloo && has(end, "before the end of"))));
      }
    }
  }

  TEST_CASE("a slow rank is the one that the others wait for") {
    for (const Backend backend : kBackends) {
      CAPTURE(testing::name_of(backend));
      RankProcesses ranks(backend, "straggle", 3);
      for (const int rank : {0, 1}) {
        const ChildProcess::End end = ranks.wait(rank);
        CHECK(end.code == 0);
        CHECK_MESSAGE(has(end, "waited most for rank 2"), end.output);
      }
    }
  }

  TEST_CASE("shared memory that is used up is named with what is left") {
    RankProcesses ranks(Backend::Shm, "exhaust", 1, std::uint64_t{10} << 20);
    const ChildProcess::End end = ranks.wait(0);
    CHECK(end.code == 3);
    CHECK_MESSAGE(has(end,
                      "the shared memory of rank 0: 4194304 bytes do not fit: 2097152 of "
                      "10485760 are free"),
                  end.output);
  }
}

}  // namespace fsdptrain::comm
