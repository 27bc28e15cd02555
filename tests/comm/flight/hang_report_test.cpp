#include "comm/flight/hang_report.h"

#include <array>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "comm/link/frame.h"
#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;
using doctest::Contains;

constexpr auto kAllGather = static_cast<std::uint8_t>(Op::AllGather);
constexpr auto kReduceScatter = static_cast<std::uint8_t>(Op::ReduceScatter);
constexpr auto kAllReduce = static_cast<std::uint8_t>(Op::AllReduce);
constexpr auto kRecv = static_cast<std::uint8_t>(Op::Recv);

constexpr FlightState kPosted = FlightState::Posted;
constexpr FlightState kStarted = FlightState::Started;
constexpr FlightState kCompleted = FlightState::Completed;
constexpr FlightState kFailed = FlightState::Failed;

// What ranks recorded; the report is made 100 s after their clocks began.
class Ranks {
 public:
  explicit Ranks(int world_size) {
    for (int rank = 0; rank < world_size; ++rank) {
      FlightSnapshot ring;
      ring.header.identity = {rank, world_size, 0, "node1"};
      ring.header.pid = 1000 + rank;
      ring.header.capacity = 64;
      rings.push_back(ring);
    }
  }

  FlightRecord& add(int rank, FlightRecord record) {
    FlightSnapshot& ring = rings.at(static_cast<std::size_t>(rank));
    record.number = ring.header.num_written++;
    ring.records.push_back(record);
    return ring.records.back();
  }

  HangReport report(std::span<const FlightGroup> groups = {}) const {
    return describe_hang(rings, {.now = 100s, .groups = groups});
  }
  // As they go on.
  HangReport live_report() const { return describe_hang(rings, {.now = 100s, .is_live = true}); }

  // As they end for a known reason.
  HangReport explained_report() const {
    return describe_hang(rings, {.now = 100s, .is_explained = true});
  }

  std::vector<FlightSnapshot> rings;
};

// Of a group of 4 ranks; `at` is when it came to its state.
FlightRecord record(std::uint8_t op, std::uint64_t sequence, FlightState state, Nanoseconds at,
                    std::string_view group = "fsdp") {
  FlightRecord record;
  record.op = op;
  record.tag.direction = static_cast<std::uint8_t>(Direction::Forward);
  record.sequence = sequence;
  record.state = state;
  record.posted = record.started = record.completed = at;
  record.set_group_name(group);
  record.group = group.size();
  record.group_size = 4;
  return record;
}

using Culprits = std::vector<int>;

}  // namespace

TEST_SUITE("comm/hang_report") {
  TEST_CASE("the rank that has not arrived is the culprit") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2, 3}) {
      ranks.add(rank, record(kReduceScatter, 40, kCompleted, 87900ms)).reduce_op = 1;
    }
    for (const int rank : {0, 1, 2}) {
      FlightRecord& waiting = ranks.add(rank, record(kAllGather, 41, kStarted, 88s));
      waiting.tag = {.root = 1, .group = 5, .invocation = 2, .direction = 2};
      waiting.dtype = static_cast<std::uint8_t>(DType::BFloat16);
      waiting.count = 1048576;
      waiting.straggler = rank == 0 ? 2 : 3;
      waiting.longest_wait = rank == 0 ? 1500ms : 11900ms;
    }
    const HangReport report = ranks.report();
    CHECK(report.culprits == Culprits{3});
    CHECK(report.text ==
          "hang report: rings of 4 of 4 ranks, attempt 0\n"
          "culprit: rank 3 (process 1003 on node1): has not arrived in all_gather seq 41 "
          "of group 'fsdp'; waiting nowhere\n"
          "group 'fsdp' (0000000000000004, 4 ranks):\n"
          "  ranks 0-2 wait in all_gather seq 41 of group 'fsdp' (tag root 1 group 5 invocation 2 "
          "backward, bfloat16 x 1048576) since 12.0 s\n"
          "  rank 3 has not arrived: the last is reduce_scatter seq 40, completed 12.1 s ago; "
          "waiting nowhere\n"
          "  rank 0 waited longest for rank 2: 1.5 s\n"
          "  ranks 1-2 waited longest for rank 3: 11.9 s\n");
  }

  TEST_CASE("where nobody waits, the report says so") {
    Ranks ranks(2);
    ranks.add(0, record(kAllGather, 0, kCompleted, 1s)).group_size = 2;
    ranks.add(1, record(kAllGather, 0, kPosted, 1s)).group_size = 2;
    const HangReport report = ranks.report();
    CHECK(report.culprits.empty());
    CHECK(report.text ==
          "hang report: rings of 2 of 2 ranks, attempt 0\n"
          "nobody waits\n"
          "group 'fsdp' (0000000000000004, 2 ranks): nobody waits\n");
    CHECK(describe_hang({}, {.now = 1s}).text ==
          "hang report: rings of 0 of 0 ranks, attempt 0\nnobody waits\n");
  }

  TEST_CASE("while ranks go on, nobody is to blame before a deadline has passed") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2}) {
      FlightRecord& waiting = ranks.add(rank, record(kAllGather, 5, kStarted, 90s));
      waiting.deadline = 10;
      waiting.started += rank * 100ms;
    }
    ranks.add(3, record(kAllGather, 4, kCompleted, 80s));
    const std::string late =
        "rank 3 (process 1003 on node1): has not arrived in all_gather seq 5 of group 'fsdp'; "
        "waiting nowhere\n";
    const std::string head = "hang report: rings of 4 of 4 ranks, attempt 0\n";
    HangReport report = ranks.live_report();
    CHECK(report.culprits.empty());
    CHECK_MESSAGE(report.text.starts_with(
                      head + "nothing is overdue: the longest wait is 10.0 s, of 10 s at most\n" +
                      "so far: " + late + "group "),
                  report.text);
    CHECK(ranks.report().text.starts_with(head + "culprit: " + late));

    ranks.rings[0].records[0].started -= 1ms;
    report = ranks.live_report();
    CHECK(report.culprits == Culprits{3});
    CHECK_MESSAGE(report.text.starts_with(head + "culprit: " + late), report.text);

    for (const std::size_t rank : {0, 1, 2}) {
      ranks.rings[rank].records[0].deadline = kNoDeadline;
    }
    report = ranks.live_report();
    CHECK(report.culprits.empty());
    CHECK_MESSAGE(
        report.text.starts_with(
            head + "nothing is overdue: the longest wait is 10.0 s, without a deadline\n"),
        report.text);
  }

  TEST_CASE("ranks that have given up or disagree are told of at once") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2}) {
      ranks.add(rank, record(kAllGather, 5, kStarted, 99s));
    }
    ranks.add(3, record(kAllGather, 4, kCompleted, 80s));
    CHECK(ranks.live_report().culprits.empty());
    ranks.rings[1].records[0].state = kFailed;
    CHECK(ranks.live_report().culprits == Culprits{3});
    ranks.rings[1].records[0].state = kStarted;
    ranks.add(3, record(kReduceScatter, 5, kPosted, 99s));
    CHECK(ranks.live_report().culprits == Culprits{3});
  }

  TEST_CASE("where a job ends for a known reason, waits are to blame that passed a deadline") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2}) {
      ranks.add(rank, record(kAllGather, 5, rank == 2 ? kStarted : kFailed, 99s)).deadline = 10;
    }
    ranks.add(3, record(kAllGather, 4, kCompleted, 99s));
    CHECK(ranks.report().culprits == Culprits{3});
    const HangReport report = ranks.explained_report();
    CHECK(report.culprits.empty());
    CHECK_MESSAGE(report.text.starts_with("hang report: rings of 4 of 4 ranks, attempt 0\n"
                                          "no culprit: no deadline has passed\ngroup "),
                  report.text);
    // Given up at its deadline, and a deadline that has passed by now.
    Ranks given_up = ranks;
    given_up.rings[1].records[0].started = 89s;
    CHECK(given_up.explained_report().culprits == Culprits{3});
    Ranks waits = ranks;
    waits.rings[2].records[0].started = 89s;
    CHECK(waits.explained_report().culprits == Culprits{3});
    ranks.add(3, record(kReduceScatter, 5, kPosted, 99s));
    CHECK(ranks.explained_report().culprits == Culprits{3});
  }

  TEST_CASE("where ranks go on and nobody is late, nothing is overdue, and no more is said") {
    Ranks ranks(2);
    for (const int rank : {0, 1}) {
      ranks.add(rank, record(kAllGather, 5, kStarted, 99s)).group_size = 2;
    }
    CHECK(ranks.live_report().text.starts_with(
        "hang report: rings of 2 of 2 ranks, attempt 0\n"
        "nothing is overdue: the longest wait is 1.0 s, without a deadline\ngroup "));
  }

  TEST_CASE("a late rank that waits in another group is no culprit, but who it waits for is") {
    Ranks ranks(4);
    for (const int rank : {0, 1}) {
      ranks.add(rank, record(kAllGather, 7, kStarted, 90s));
    }
    ranks.add(2, record(kAllGather, 6, kCompleted, 80s));
    ranks.add(2, record(kAllReduce, 3, kStarted, 89s, "replicate")).group_size = 2;
    ranks.add(3, record(kAllGather, 7, kStarted, 90500ms));
    ranks.add(3, record(kAllReduce, 2, kCompleted, 70s, "replicate")).group_size = 2;
    ranks.rings[3].records.pop_back();
    CHECK(ranks.report().culprits.empty());
    // Rank 1 belongs to 'replicate', too, and has not issued 3 there.
    const std::array<FlightGroup, 1> groups = {FlightGroup{9, {1, 2}}};
    const HangReport report = ranks.report(groups);
    CHECK(report.culprits.empty());
    CHECK(
        report.text ==
        "hang report: rings of 4 of 4 ranks, attempt 0\n"
        "no culprit: every late rank waits in another operation: ranks issue them in different "
        "orders\n"
        "group 'fsdp' (0000000000000004, 4 ranks):\n"
        "  ranks 0-1, 3 wait in all_gather seq 7 of group 'fsdp' (tag root 0 group 0 invocation "
        "0 forward) since 9.5-10.0 s\n"
        "  rank 2 has not arrived: the last is all_gather seq 6, completed 20.0 s ago; waiting in "
        "all_reduce seq 3 of group 'replicate'\n"
        "group 'replicate' (0000000000000009, 2 ranks):\n"
        "  rank 2 waits in all_reduce seq 3 of group 'replicate' (tag root 0 group 0 invocation "
        "0 forward) since 11.0 s\n"
        "  rank 1 has not arrived: no record in this group; waiting in all_gather seq 7 of group "
        "'fsdp'\n");

    // Had rank 1 not been in all_gather, all would wait for it in the end.
    ranks.rings[1].records.clear();
    CHECK(ranks.report(groups).culprits == Culprits{1});
  }

  TEST_CASE("a minority that issues something else is the culprit, whatever else is late") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2}) {
      ranks.add(rank, record(kAllGather, 40, kCompleted, 80s)).count = 64;
    }
    for (const int rank : {0, 1}) {
      ranks.add(rank, record(kAllGather, 41, kStarted, 88s)).count = 64;
    }
    FlightRecord& other = ranks.add(3, record(kReduceScatter, 40, kCompleted, 80s));
    other.count = 32;
    other.reduce_op = 0;
    const HangReport report = ranks.report();
    CHECK(report.culprits == Culprits{3});
    CHECK_MESSAGE(
        report.text.find(
            "culprit: rank 3 (process 1003 on node1): disagrees with ranks 0-2 about all_gather "
            "seq 40 in op, count, reduce op\n"
            "group 'fsdp' (0000000000000004, 4 ranks):\n"
            "  ranks disagree about seq 40:\n"
            "    ranks 0-2: all_gather seq 40 of group 'fsdp' (tag root 0 group 0 invocation 0 "
            "forward)\n"
            "    rank 3: reduce_scatter seq 40 of group 'fsdp' (tag root 0 group 0 invocation 0 "
            "forward, sum); differs in op, count, reduce op\n"
            "  ranks 0-1 wait in all_gather seq 41") != std::string::npos,
        report.text);
  }

  TEST_CASE("each thing that ranks can disagree about is named") {
    const auto differing = [](auto change) {
      Ranks ranks(4);
      for (const int rank : {0, 1, 2, 3}) {
        FlightRecord& own = ranks.add(rank, record(kAllReduce, 3, kStarted, 90s));
        if (rank == 1) {
          change(own);
        }
      }
      const HangReport report = ranks.report();
      CHECK(report.culprits == Culprits{1});
      const std::size_t at = report.text.find("about all_reduce seq 3 in ");
      REQUIRE(at != std::string::npos);
      return report.text.substr(at + 26, report.text.find('\n', at) - at - 26);
    };
    CHECK(differing([](FlightRecord& own) { own.op = kAllGather; }) == "op");
    CHECK(differing([](FlightRecord& own) { own.tag.root = 1; }) == "tag");
    CHECK(differing([](FlightRecord& own) { own.tag.group = 1; }) == "tag");
    CHECK(differing([](FlightRecord& own) { own.tag.invocation = 1; }) == "tag");
    CHECK(differing([](FlightRecord& own) { own.tag.direction = 2; }) == "tag");
    CHECK(differing([](FlightRecord& own) { own.dtype = 1; }) == "dtype");
    CHECK(differing([](FlightRecord& own) { own.count = 1; }) == "count");
    CHECK(differing([](FlightRecord& own) { own.reduce_op = 1; }) == "reduce op");
    CHECK(differing([](FlightRecord& own) { own.root = 1; }) == "root");
  }

  TEST_CASE("counts that are a rank's own, and states, are no disagreement") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2, 3}) {
      FlightRecord& own =
          ranks.add(rank, record(kAllReduce, 3, rank == 0 ? kCompleted : kPosted, 90s));
      own.count = static_cast<std::uint64_t>(rank);
      own.counts_vary = true;
      own.straggler = rank;
      own.call_site = static_cast<std::uint32_t>(rank);
    }
    CHECK(ranks.report().culprits.empty());
    CHECK(ranks.report().text.find("disagree") == std::string::npos);
    ranks.rings[2].records[0].counts_vary = false;
    CHECK(ranks.report().culprits == Culprits{2});
  }

  TEST_CASE("without a majority nobody is blamed") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2, 3}) {
      ranks.add(rank, record(rank % 2 == 0 ? kAllGather : kAllReduce, 3, kStarted, 90s));
    }
    const HangReport report = ranks.report();
    CHECK(report.culprits.empty());
    CHECK_MESSAGE(report.text.find("no culprit: ranks disagree, and no side has a majority\n") !=
                      std::string::npos,
                  report.text);
    CHECK(report.text.find("    ranks 0, 2: all_gather") < report.text.find("    ranks 1, 3: all"));
  }

  TEST_CASE("records that only some rings still have are no disagreement") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2, 3}) {
      for (std::uint64_t sequence = rank == 2 ? 30 : 0; sequence < 40; ++sequence) {
        ranks.add(rank, record(kAllGather, sequence, kCompleted, 80s));
      }
      ranks.rings[2].num_lost = 30;
    }
    CHECK(ranks.report().text.find("nobody waits\n") != std::string::npos);
  }

  TEST_CASE("ranks without a ring are named, and late where the group is the world") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2}) {
      ranks.add(rank, record(kAllGather, 0, kStarted, 90s));
    }
    ranks.rings.pop_back();
    ranks.rings[2].header.pid = 0;
    ranks.rings[2].records.clear();
    ranks.rings[1].num_torn = 1;
    const HangReport report = ranks.report();
    CHECK(report.culprits == Culprits{2, 3});
    CHECK(report.text ==
          "hang report: rings of 3 of 4 ranks, attempt 0\n"
          "no ring: rank 3\n"
          "no process has begun to write: rank 2\n"
          "records that cannot be read: rank 1\n"
          "culprit: rank 2: has not arrived in all_gather seq 0 of group 'fsdp'; no ring written\n"
          "culprit: rank 3: has not arrived in all_gather seq 0 of group 'fsdp'; no ring written\n"
          "group 'fsdp' (0000000000000004, 4 ranks):\n"
          "  ranks 0-1 wait in all_gather seq 0 of group 'fsdp' (tag root 0 group 0 invocation 0 "
          "forward) since 10.0 s\n"
          "  ranks 2-3 have not arrived: no record in this group; no ring written\n");
  }

  TEST_CASE("of a group that is a part of the world, members that never came are counted") {
    Ranks ranks(8);
    ranks.add(0, record(kAllGather, 0, kStarted, 90s));
    ranks.add(1, record(kAllGather, 0, kStarted, 90s));
    HangReport report = ranks.report();
    CHECK(report.culprits.empty());
    CHECK_MESSAGE(
        report.text.find("  2 more of its 4 ranks: no record in this group tells which\n") !=
            std::string::npos,
        report.text);
    const std::array<FlightGroup, 2> groups = {FlightGroup{3, {0, 1}},
                                               FlightGroup{4, {0, 1, 5, 7}}};
    report = ranks.report(groups);
    CHECK(report.culprits == Culprits{5, 7});
    CHECK(report.text.find("more of its") == std::string::npos);
    CHECK(report.text.find("  ranks 5, 7 have not arrived: no record in this group; waiting "
                           "nowhere\n") != std::string::npos);
  }

  TEST_CASE("a rank whose ring lost the group's records is not blamed") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2}) {
      ranks.add(rank, record(kAllGather, 5, kStarted, 90s));
    }
    ranks.add(3, record(kAllReduce, 900, kCompleted, 99s, "other"));
    ranks.rings[3].num_lost = 837;
    const HangReport report = ranks.report();
    CHECK(report.culprits.empty());
    CHECK_MESSAGE(report.text.find("  rank 3 has lost all records of this group to newer ones; "
                                   "waiting nowhere\n") != std::string::npos,
                  report.text);
  }

  TEST_CASE("a rank that has posted but does not wait is the culprit where nobody is late") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2}) {
      ranks.add(rank, record(kAllGather, 5, kStarted, 90s));
    }
    ranks.add(3, record(kAllGather, 5, kPosted, 89s));
    ranks.add(3, record(kAllGather, 6, kPosted, 89s));
    HangReport report = ranks.report();
    CHECK(report.culprits == Culprits{3});
    CHECK_MESSAGE(
        report.text.find("  rank 3 has posted all_gather seq 5 of group 'fsdp' (tag root "
                         "0 group 0 invocation 0 forward) 11.0 s ago; waiting nowhere\n") !=
            std::string::npos,
        report.text);
    // Late is worse than idle.
    ranks.rings[2].records.clear();
    CHECK(ranks.report().culprits == Culprits{2});
  }

  TEST_CASE("a rank that is left alone in a collective is the culprit") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2}) {
      ranks.add(rank, record(kAllGather, 5, kCompleted, 89s));
      ranks.add(rank, record(kAllGather, 6, kStarted, 90s));
    }
    ranks.add(3, record(kAllGather, 5, kStarted, 88s));
    const HangReport report = ranks.report();
    CHECK(report.culprits == Culprits{3});
    CHECK_MESSAGE(report.text.find("  ranks 0-2 have left all_gather seq 5 behind; waiting in "
                                   "all_gather seq 6 of group 'fsdp'\n") != std::string::npos,
                  report.text);
  }

  TEST_CASE("where all have arrived and nothing moves, nobody is blamed") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2, 3}) {
      ranks.add(rank, record(kAllGather, 5, kStarted, 90s));
    }
    const HangReport report = ranks.report();
    CHECK(report.culprits.empty());
    CHECK(report.text.find("no culprit: all known ranks have arrived, and nothing moves\n") !=
          std::string::npos);
  }

  TEST_CASE("where all have arrived, the one that all others wait for there is the culprit") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2, 3}) {
      FlightRecord& own = ranks.add(rank, record(kAllReduce, 5, kStarted, 90s));
      own.straggler = rank == 2 ? 3 : 2;
      own.longest_wait = 9s;
    }
    HangReport report = ranks.report();
    CHECK(report.culprits == Culprits{2});
    CHECK_MESSAGE(
        report.text.find("culprit: rank 2 (process 1002 on node1): has arrived in all_reduce "
                         "seq 5 of group 'fsdp', but ranks 0-1, 3 wait for it there\n") !=
            std::string::npos,
        report.text);
    // One other opinion, and nobody is.
    ranks.rings[0].records[0].straggler = 1;
    CHECK(ranks.report().culprits.empty());
    // Of two that wait for each other none is.
    Ranks pair(2);
    for (const int rank : {0, 1}) {
      FlightRecord& own = pair.add(rank, record(kAllReduce, 5, kStarted, 90s));
      own.straggler = 1 - rank;
      own.group_size = 2;
    }
    CHECK(pair.report().culprits.empty());
  }

  TEST_CASE("an operation that was given up counts until the rank goes on behind it") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2}) {
      ranks.add(rank, record(kAllGather, 5, kFailed, 90s));
    }
    ranks.add(3, record(kAllGather, 4, kCompleted, 80s));
    HangReport report = ranks.report();
    CHECK(report.culprits == Culprits{3});
    CHECK_MESSAGE(
        report.text.find("  ranks 0-2 failed in all_gather seq 5 of group 'fsdp' (tag "
                         "root 0 group 0 invocation 0 forward) 10.0 s ago\n") != std::string::npos,
        report.text);
    for (const int rank : {0, 1, 2, 3}) {
      ranks.add(rank, record(kAllGather, 6, kCompleted, 95s));
    }
    CHECK(ranks.report().text.find("\nnobody waits\n") != std::string::npos);
  }

  TEST_CASE("a receive whose peer is elsewhere is told beside the collectives") {
    Ranks ranks(4);
    FlightRecord recv = record(kRecv, 9, kStarted, 90s);
    recv.is_point_to_point = true;
    recv.root = 1;
    ranks.add(2, recv);
    ranks.add(3, recv).root = kNoRank;
    ranks.add(1, record(kAllGather, 0, kCompleted, 50s));
    const HangReport report = ranks.report();
    CHECK(report.culprits == Culprits{1});
    CHECK_MESSAGE(
        report.text.find("culprit: rank 1 (process 1001 on node1): rank 2 waits for it in recv "
                         "seq 9 of group 'fsdp'; waiting nowhere\n") != std::string::npos,
        report.text);
    CHECK(report.text.find("  rank 2 waits in recv seq 9 of group 'fsdp' (tag root 0 group 0 "
                           "invocation 0 forward, peer rank 1) since 10.0 s; rank 1: waiting "
                           "nowhere\n") != std::string::npos);
  }

  TEST_CASE("of ranks that receive from each other, none is blamed") {
    Ranks ranks(4);
    for (const int rank : {1, 2}) {
      FlightRecord& recv = ranks.add(rank, record(kRecv, 9, kStarted, 90s));
      recv.is_point_to_point = true;
      recv.root = 3 - rank;
    }
    const HangReport report = ranks.report();
    CHECK(report.culprits.empty());
    CHECK_MESSAGE(report.text.find("no culprit: every late rank waits in another operation") !=
                      std::string::npos,
                  report.text);
    CHECK(report.text.find("; rank 2: waiting in recv seq 9 of group 'fsdp'\n") !=
          std::string::npos);
  }

  TEST_CASE("rings of earlier attempts are left out") {
    Ranks ranks(2);
    ranks.add(0, record(kAllGather, 5, kStarted, 10s)).group_size = 2;
    const FlightSnapshot old = ranks.rings[0];
    ranks.rings[0].header.identity.attempt = ranks.rings[1].header.identity.attempt = 1;
    ranks.rings[0].records.clear();
    ranks.rings.push_back(old);
    CHECK(ranks.report().text ==
          "hang report: rings of 2 of 2 ranks, attempt 1\n"
          "rings of earlier attempts, left out: 1\n"
          "nobody waits\n");
  }

  TEST_CASE("rings of two worlds, and two of one rank, are refused") {
    Ranks ranks(2);
    ranks.rings[1].header.identity.world_size = 3;
    CHECK_THROWS_WITH_AS(ranks.report(),
                         Contains("hang report: all rings must be of one world, got one of 2 ranks "
                                  "and one of 3 ranks (rank 1)"),
                         DataError);
    ranks.rings[1] = ranks.rings[0];
    ranks.rings[1].header.pid = 5;
    CHECK_THROWS_WITH_AS(ranks.report(),
                         Contains("hang report: a rank must have one ring, got two of rank 0 in "
                                  "attempt 0: of process 1000 on node1 and of process 5 on node1"),
                         DataError);
  }

  TEST_CASE("times of hosts whose clocks began at different dates are compared by date") {
    Ranks ranks(4);
    for (const int rank : {0, 1, 2, 3}) {
      FlightSnapshot& ring = ranks.rings[static_cast<std::size_t>(rank)];
      ring.header.start_clock = rank * 1000s;
      ring.header.start_date = 50s;
      ranks.add(rank, record(kAllGather, 5, kStarted, rank * 1000s + 20s));
    }
    CHECK(ranks.report().text.find("ranks 0-3 wait in all_gather seq 5 of group 'fsdp' (tag root 0 "
                                   "group 0 invocation 0 forward) since 30.0 s\n") !=
          std::string::npos);
  }

  TEST_CASE("damaged times, numbers without a name and many culprits are still told") {
    Ranks ranks(20);
    FlightRecord own = record(17, 5, kStarted, Nanoseconds::min());
    own.group_size = 20;
    own.dtype = 33;
    own.reduce_op = 22;
    own.root = 4;
    own.tag.direction = 9;
    ranks.add(0, own);
    ranks.rings[0].header.start_date = Nanoseconds::max();
    ranks.rings[0].header.start_clock = Nanoseconds::min();
    const HangReport report = ranks.report();
    CHECK(report.culprits.size() == 19);
    CHECK(report.text.find("more culprits: ranks 17-19\n") != std::string::npos);
    CHECK_MESSAGE(report.text.find(
                      "rank 0 waits in op 17 seq 5 of group 'fsdp' (tag root 0 group 0 "
                      "invocation 0 in no known direction, dtype 33 x 0, reduce op 22, root rank "
                      "4) since 0.0 s\n") != std::string::npos,
                  report.text);
  }

  TEST_CASE("a group of parameters that any ring has a name for is called by it") {
    Ranks ranks(2);
    FlightRecord own = record(kAllReduce, 5, kStarted, 90s);
    own.group_size = 2;
    own.tag = {.root = 0, .group = 7, .invocation = 3, .direction = 2};
    ranks.add(0, own);
    ranks.rings[1].names.set(0, 7, "h.3.ln_1.weight");
    const HangReport report = ranks.report();
    CHECK(report.text.find("has not arrived in all_reduce seq 5 of group 'fsdp' for "
                           "h.3.ln_1.weight; waiting nowhere\n") != std::string::npos);
    CHECK(report.text.find("  rank 0 waits in all_reduce seq 5 of group 'fsdp' for h.3.ln_1.weight "
                           "(tag root 0 group 7 invocation 3 backward) since 10.0 s\n") !=
          std::string::npos);
    ranks.rings[0].records[0].tag = {};  // none, which is no group's
    ranks.rings[1].names.set(0, 0, "wte.weight");
    CHECK(ranks.report().text.find("wte") == std::string::npos);
  }
}

}  // namespace fsdptrain::comm
