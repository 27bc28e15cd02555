#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "comm/board/board.h"
#include "comm/error.h"
#include "comm/shm/connect.h"
#include "comm/shm/segment.h"

// What ranks in shared memory hear of the failure of one of them.
namespace fsdptrain::comm {
namespace {

std::shared_ptr<const Segment> segment_for(int num_ranks) {
  const int descriptor = Segment::create({num_ranks, 0});
  const auto segment = std::make_shared<const Segment>(descriptor);
  ::close(descriptor);
  return segment;
}

}  // namespace

TEST_SUITE("comm/board/failure") {
  TEST_CASE("all hear of the first failure, and of no other") {
    const auto segment = segment_for(3);
    const Links first = connect_shm(segment, 2, false);
    const Links second = connect_shm(segment, 0, false);
    const Links other = connect_shm(segment, 1, false);
    CHECK_NOTHROW(other.training->check_failure());
    first.training->report_failure("no more tokens");
    second.training->report_failure("later");
    first.training->report_failure("later still");
    for (const Links* links : {&first, &second, &other}) {
      CHECK_THROWS_WITH_AS(links->training->check_failure(),
                           doctest::Contains("rank 2 failed: no more tokens"), PeerError);
    }
    CHECK_NOTHROW(other.control->check_failure());
  }

  TEST_CASE("a rank that was killed while it wrote why it fails hides no later failure") {
    const auto segment = segment_for(3);
    // All that it leaves.
    Failure& unfinished = segment->training().failure(1);
    unfinished.is_taken = true;
    std::memcpy(unfinished.text.data(), "half of", 7);
    const Links links = connect_shm(segment, 0, false);
    const Links other = connect_shm(segment, 2, false);
    CHECK_NOTHROW(other.training->check_failure());
    links.training->report_failure("rank 1 died");
    CHECK_THROWS_WITH_AS(other.training->check_failure(),
                         doctest::Contains("rank 0 failed: rank 1 died"), PeerError);
  }

  TEST_CASE("who saw the end of a rank tells the others, on both boards") {
    const auto segment = segment_for(3);
    const Links links = connect_shm(segment, 0, false);
    segment->report_end(2, "it was ended by signal 9");
    segment->report_end(1, "later");
    for (Link* link : {links.training.get(), links.control.get()}) {
      CHECK_THROWS_WITH_AS(link->check_failure(),
                           doctest::Contains("rank 2 failed: it was ended by signal 9"), PeerError);
    }
  }

  TEST_CASE("a failure that the rank reported itself stays, one that it began to report counts") {
    const auto segment = segment_for(2);
    const Links links = connect_shm(segment, 0, false);
    {
      const Links failing = connect_shm(segment, 1, false);
      failing.training->report_failure("no more tokens");
    }
    Failure& unfinished = segment->control().failure(1);
    unfinished.is_taken = true;
    std::memcpy(unfinished.text.data(), "half of", 7);
    segment->report_end(1, "it ended with exit code 1");
    CHECK_THROWS_WITH_AS(links.training->check_failure(),
                         doctest::Contains("rank 1 failed: no more tokens"), PeerError);
    CHECK_THROWS_WITH_AS(links.control->check_failure(),
                         doctest::Contains("rank 1 failed: half of"), PeerError);
  }

  TEST_CASE("of a text of several lines the others hear the first") {
    const auto segment = segment_for(2);
    const Links failing = connect_shm(segment, 1, false);
    const Links links = connect_shm(segment, 0, false);
    failing.training->report_failure("no end, missing: rank 0\n  rank 0 is elsewhere");
    CHECK_THROWS_WITH_AS(links.training->check_failure(),
                         doctest::Contains("rank 1 failed: no end, missing: rank 0 ["), PeerError);
  }

  TEST_CASE("a text that is too long is cut") {
    const auto segment = segment_for(1);
    const Links links = connect_shm(segment, 0, false);
    links.training->report_failure(std::string(5000, 'x') + "end");
    CHECK_THROWS_WITH_AS(links.training->check_failure(),
                         doctest::Contains(("rank 0 failed: " + std::string(4095, 'x')).c_str()),
                         PeerError);
  }
}

}  // namespace fsdptrain::comm
