#include "tools/launch/report.h"

#include <csignal>

#include <doctest/doctest.h>

#include "tools/launch/exec_stage.h"
#include "tools/launch/watchdog.h"

namespace fsdptrain::tools {
namespace {

using namespace std::chrono_literals;

comm::FlightSnapshot ring_with(comm::FlightState state, std::uint16_t deadline) {
  comm::FlightRecord record;
  record.state = state;
  record.started = 100s;
  record.deadline = deadline;
  record.sequence = 41;
  record.tag.group = 8;
  record.set_group_name("world");
  comm::FlightSnapshot ring;
  ring.records = {record};
  return ring;
}

}  // namespace

TEST_SUITE("tools/launch/report") {
  TEST_CASE("the report names the first rank, how it ended, its last lines, then the others") {
    const FailureFacts facts{
        .failure = {2, "was ended by signal 9 (SIGKILL)"},
        .when = 12340ms,
        .last_lines = {"step 3", "step 4"},
        .ends = {RankExit{.rank = 0, .value = 15, .is_signal = true},
                 RankExit{.rank = 1, .value = 1},
                 RankExit{.rank = 2, .value = 9, .is_signal = true},
                 RankExit{.rank = 3, .value = 15, .is_signal = true}, std::nullopt},
        .hang_report = "hang report: x\n"};
    CHECK(failure_report(facts) ==
          "launch: rank 2 failed first, 12.3 s after the start: it was ended by signal 9 "
          "(SIGKILL)\n"
          "launch: the last lines of rank 2:\n"
          "  | step 3\n"
          "  | step 4\n"
          "launch: then rank 4 could not be ended\n"
          "launch: then rank 1 ended with exit code 1\n"
          "launch: then ranks 0, 3 were ended by signal 15 (SIGTERM)\n"
          "hang report: x\n");
  }

  TEST_CASE("a rank that printed nothing is said to") {
    const FailureFacts facts{.failure = {0, "ended with exit code 1"},
                             .when = 1s,
                             .last_lines = {},
                             .ends = {RankExit{.value = 1}},
                             .hang_report = ""};
    CHECK(failure_report(facts).find("rank 0 has printed nothing\n") != std::string::npos);
  }

  TEST_CASE("an operation is overdue 5 s behind its deadline, and only while the rank is in it") {
    using comm::FlightState;
    CHECK_FALSE(find_overdue(ring_with(FlightState::Started, 60), 165s).has_value());
    const auto text = find_overdue(ring_with(FlightState::Started, 60), 166s);
    REQUIRE(text.has_value());
    CHECK(text->find("seq 41 of group 'world' (tag root 0 group 8") != std::string::npos);
    CHECK(text->find("for 66 s, with a deadline of 60 s, and does not give up") !=
          std::string::npos);
    for (const FlightState state :
         {FlightState::Posted, FlightState::Completed, FlightState::Failed}) {
      CHECK_FALSE(find_overdue(ring_with(state, 60), 1000s).has_value());
    }
    CHECK_FALSE(
        find_overdue(ring_with(FlightState::Started, comm::kNoDeadline), 1'000'000s).has_value());
  }

  TEST_CASE("what keeps a program from starting is explained with a cure") {
    const auto has = [](const ExecFailure& failure, const char* program, const char* text) {
      return explain(failure, program).find(text) != std::string::npos;
    };
    CHECK(has({ENOENT}, "nosuch", "is in no folder of PATH; give its path, as in ./nosuch"));
    CHECK(has({ENOENT}, "./nosuch", "is not there, or the interpreter of its first line is not"));
    CHECK(has({EACCES}, "./t.py", "put the interpreter in front: python3 ./t.py"));
    CHECK(has({EACCES}, "./prog", "chmod +x"));
    CHECK(has({ENOEXEC}, "./run.sh", "put the interpreter in front: bash ./run.sh"));
    CHECK(has({E2BIG}, "./prog", "cannot be started: Argument list too long"));
    CHECK(has({EINVAL, false}, "./prog", "a process for \"./prog\" cannot be prepared"));
  }

  TEST_CASE("what a signal did, in words") {
    const auto sent = [](int signal) { return Supervisor::Actions{.signals = {{0, signal}}}; };
    CHECK(signal_note(2, sent(2), 30s) == "stopped by signal 2; waiting 30 s for the ranks to end");
    CHECK(signal_note(2, sent(SIGKILL), std::nullopt) ==
          "signal 2 while the job ends: the ranks are killed");
    CHECK(signal_note(15, sent(15), std::nullopt) ==
          "signal 15 while the job ends: the ranks get it, too");
    CHECK(signal_note(15, {}, std::nullopt) ==
          "signal 15 while the job ends: nothing more is done");
  }

  TEST_CASE("how a rank ended, in words") {
    CHECK(describe({.value = 3}) == "ended with exit code 3");
    CHECK(describe({.value = SIGSEGV, .is_signal = true}) == "was ended by signal 11 (SIGSEGV)");
    CHECK(describe({.value = 40, .is_signal = true}) == "was ended by signal 40");
  }
}

}  // namespace fsdptrain::tools
