#include "tools/launch/supervisor.h"

#include <csignal>
#include <map>

#include <doctest/doctest.h>

namespace fsdptrain::tools {
namespace {

using namespace std::chrono_literals;
using comm::Nanoseconds;
using Signals = std::vector<std::pair<int, int>>;

class HandClock final : public comm::Clock {
 public:
  Nanoseconds now() const override { return now_; }
  void advance(Nanoseconds time) { now_ += time; }

 private:
  Nanoseconds now_ = 1h;
};

RankExit code(int rank, int value) {
  return {.rank = rank, .value = value, .has_joined = true};
}

RankExit signal(int rank, int value) {
  return {.rank = rank, .value = value, .is_signal = true, .has_joined = true};
}

// A job of three ranks with 10 s for a shutdown.
struct Job {
  explicit Job(bool propagates = false)
      : supervisor({.num_ranks = 3, .shutdown_timeout = 10s, .propagate_exit_code = propagates},
                   clock) {}

  Supervisor::Actions ends(std::vector<RankExit> exits,
                           const std::optional<RankFailure>& reported = std::nullopt) {
    return supervisor.exited(exits, reported);
  }
  Supervisor::Actions after(Nanoseconds time) {
    clock.advance(time);
    return supervisor.tick();
  }
  // Lets the rest of the ranks end so, one after the other.
  int finish_with(int value, bool is_signal = false) {
    for (int rank = 0; rank < 3; ++rank) {
      if (supervisor.is_running(rank)) {
        ends({is_signal ? signal(rank, value) : code(rank, value)});
      }
    }
    REQUIRE(supervisor.is_finished());
    return supervisor.exit_code();
  }

  HandClock clock;
  Supervisor supervisor;
};

bool is_nothing(const Supervisor::Actions& actions) {
  return !actions.tell && actions.signals.empty();
}

}  // namespace

TEST_SUITE("tools/launch/supervisor") {
  TEST_CASE("all ranks done is 0, and a rank that is done early is waited for without limit") {
    Job job;
    CHECK(is_nothing(job.ends({code(1, 0)})));
    CHECK_FALSE(job.supervisor.deadline().has_value());
    CHECK(is_nothing(job.after(100h)));
    CHECK_FALSE(job.supervisor.is_finished());
    CHECK(job.finish_with(0) == 0);
    CHECK_FALSE(job.supervisor.failure().has_value());
  }

  TEST_CASE("of any rank, a failure is told, SIGTERM goes to the others, then SIGKILL") {
    for (int rank = 0; rank < 3; ++rank) {
      for (const RankExit& end : {code(rank, 1), code(rank, 255), signal(rank, SIGSEGV)}) {
        CAPTURE(describe(end));
        Job job;
        const auto actions = job.ends({end});
        REQUIRE(actions.tell.has_value());
        CHECK(actions.tell->rank == rank);
        CHECK(actions.tell->text == describe(end));
        Signals terms;
        Signals kills;
        for (int other = 0; other < 3; ++other) {
          if (other != rank) {
            terms.emplace_back(other, SIGTERM);
            kills.emplace_back(other, SIGKILL);
          }
        }
        CHECK(actions.signals == terms);
        CHECK(job.supervisor.deadline() == job.clock.now() + 5s);
        CHECK(is_nothing(job.after(4999ms)));
        CHECK(job.after(1ms).signals == kills);
        CHECK(job.finish_with(SIGKILL, true) == 1);
      }
    }
  }

  TEST_CASE("only the first failure is told, and it is the one of the report") {
    Job job;
    job.ends({code(2, 3)});
    CHECK(is_nothing(job.ends({signal(0, SIGABRT)})));
    CHECK(job.finish_with(SIGTERM, true) == 1);
    CHECK(job.supervisor.failure()->rank == 2);
    CHECK(job.supervisor.failure()->text == "ended with exit code 3");
  }

  TEST_CASE("of ranks that fail at once, the one that a signal ended is the cause") {
    Job job;
    RankExit inside = code(0, 1);
    inside.was_inside = true;
    job.ends({inside, code(1, 1), signal(2, SIGKILL)}, RankFailure{1, "failed: rank 2 died"});
    CHECK(job.supervisor.failure()->rank == 2);
  }

  TEST_CASE(
      "then the one that ended in the midst of its work, then the reported, then the lowest") {
    RankExit inside = code(2, 1);
    inside.was_inside = true;
    const RankFailure reported{1, "failed: no more tokens"};
    Job one;
    one.ends({code(0, 1), code(1, 1), inside}, reported);
    CHECK(one.supervisor.failure()->rank == 2);
    Job two;
    two.ends({code(0, 1), code(2, 1)}, reported);
    CHECK(two.supervisor.failure()->rank == 1);
    CHECK(two.supervisor.failure()->text == "failed: no more tokens");
    Job three;
    three.ends({code(1, 1), code(2, 1)});
    CHECK(three.supervisor.failure()->rank == 1);
  }

  TEST_CASE("a rank that has told of its failure ends by itself, or 5 s later") {
    Job job;
    CHECK(job.ends({code(0, 1)}, RankFailure{1, "failed: x"}).signals == Signals{{2, SIGTERM}});
    CHECK(job.after(5s).signals == Signals{{1, SIGKILL}, {2, SIGKILL}});
    CHECK(job.finish_with(SIGKILL, true) == 1);
  }

  TEST_CASE("the exit code of the first rank that failed is passed on where it is asked for") {
    const std::map<int, RankExit> codes{
        {7, code(1, 7)}, {75 + 1, code(1, 76)}, {128 + SIGSEGV, signal(1, SIGSEGV)}};
    for (const auto& [expected, end] : codes) {
      Job asked(true);
      asked.ends({end});
      CHECK(asked.finish_with(9) == expected);
      Job not_asked;
      not_asked.ends({end});
      CHECK(not_asked.finish_with(9) == 1);
    }
    // One that reported its failure and ends later, and one that has no code of its own.
    Job later(true);
    later.ends({code(0, 1)}, RankFailure{2, "failed: x"});
    CHECK(later.finish_with(42) == 42);
    Job early(true);
    RankExit left = code(0, 0);
    left.has_joined = false;
    early.ends({left, code(1, 0)});
    CHECK(early.finish_with(0) == 1);
  }

  TEST_CASE("75 of some ranks and 0 of the others is 75, and they are waited for") {
    Job job;
    CHECK(is_nothing(job.ends({code(0, 75)})));
    CHECK(is_nothing(job.after(100h)));
    job.ends({code(1, 0)});
    CHECK(job.finish_with(75) == 75);
    Job failed;
    failed.ends({code(0, 75)});
    failed.ends({code(1, 1)});
    CHECK(failed.finish_with(75) == 1);
  }

  TEST_CASE("a signal goes to all ranks, which have the time of a shutdown; then SIGKILL") {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
      CAPTURE(number);
      Job job;
      job.ends({code(1, 0)});
      CHECK(job.supervisor.signalled(number).signals == Signals{{0, number}, {2, number}});
      CHECK(job.supervisor.stop_signal() == number);
      CHECK(is_nothing(job.after(9999ms)));
      CHECK(job.after(1ms).signals == Signals{{0, SIGKILL}, {2, SIGKILL}});
      CHECK(job.finish_with(SIGKILL, true) == 128 + number);
      CHECK_FALSE(job.supervisor.failure().has_value());
    }
  }

  TEST_CASE("SIGINT again ends all at once; SIGTERM again takes no time away") {
    Job job;
    job.supervisor.signalled(SIGINT);
    CHECK(job.supervisor.signalled(SIGINT).signals ==
          Signals{{0, SIGKILL}, {1, SIGKILL}, {2, SIGKILL}});
    CHECK(job.finish_with(SIGKILL, true) == 130);
    Job term;
    term.supervisor.signalled(SIGTERM);
    term.clock.advance(3s);
    CHECK(is_nothing(term.supervisor.signalled(SIGTERM)));
    CHECK(term.supervisor.deadline() == term.clock.now() + 7s);
    // Whoever sits there wants the end.
    CHECK(term.supervisor.signalled(SIGINT).signals.front() == std::pair(0, SIGKILL));
    CHECK(term.finish_with(SIGKILL, true) == 143);
    Job other;
    other.supervisor.signalled(SIGINT);
    CHECK(other.supervisor.signalled(SIGTERM).signals.front() == std::pair(0, SIGTERM));
    CHECK(other.finish_with(SIGTERM, true) == 130);
  }

  TEST_CASE("SIGINT after a failure ends the others at once") {
    Job job;
    job.ends({code(0, 1)});
    CHECK(is_nothing(job.supervisor.signalled(SIGTERM)));
    CHECK(job.supervisor.signalled(SIGINT).signals == Signals{{1, SIGKILL}, {2, SIGKILL}});
    CHECK(job.finish_with(SIGKILL, true) == 1);
  }

  TEST_CASE("ranks that saved their state after a signal make it 75, if none did anything else") {
    Job saved;
    saved.supervisor.signalled(SIGTERM);
    saved.ends({code(0, 75)});
    saved.ends({code(1, 0)});
    CHECK(saved.finish_with(75) == 75);
    for (const RankExit& end : {code(0, 1), code(0, 143), signal(0, SIGTERM)}) {
      CAPTURE(describe(end));
      Job job;
      job.supervisor.signalled(SIGTERM);
      job.ends({end});
      CHECK(job.finish_with(75) == 143);
    }
    Job done;
    done.supervisor.signalled(SIGTERM);
    CHECK(done.finish_with(0) == 143);
  }

  TEST_CASE("a rank that fails while the job is stopped is told to the others, and no more") {
    Job job;
    job.supervisor.signalled(SIGTERM);
    const auto actions = job.ends({signal(1, SIGSEGV)});
    REQUIRE(actions.tell.has_value());
    CHECK(actions.tell->rank == 1);
    CHECK(actions.signals.empty());
    CHECK(job.supervisor.deadline() == job.clock.now() + 10s);
    CHECK(is_nothing(job.ends({code(0, 143)})));
    CHECK(job.finish_with(75) == 143);
  }

  TEST_CASE("of a rank that a stop ends before it has joined, those that wait for it are told") {
    Job job;
    job.supervisor.signalled(SIGTERM);
    RankExit end = signal(1, SIGTERM);
    end.has_joined = false;
    const auto told = job.ends({end});
    REQUIRE(told.tell);
    CHECK(told.tell->rank == 1);
    CHECK(told.tell->text == "was ended by signal 15 (SIGTERM) before it joined the job");
    CHECK(told.signals.empty());
    CHECK(is_nothing(job.ends({signal(2, SIGTERM)})));
    CHECK(job.finish_with(1) == 143);
  }

  TEST_CASE("a signal to all processes of a job is no failure, even where a rank ends first") {
    for (const RankExit& end : {signal(1, SIGTERM), code(1, 143)}) {
      CAPTURE(describe(end));
      Job job;
      CHECK(job.ends({end}).tell.has_value());
      CHECK(job.supervisor.signalled(SIGTERM).signals == Signals{{0, SIGTERM}, {2, SIGTERM}});
      CHECK(job.finish_with(75) == 143);
      CHECK_FALSE(job.supervisor.failure().has_value());
      // Another signal is no explanation.
      Job other;
      other.ends({end});
      CHECK(is_nothing(other.supervisor.signalled(SIGHUP)));
      other.after(1s);
      CHECK(other.finish_with(0) == 1);
    }
  }

  TEST_CASE("where all ranks end so, the signal to the launcher is waited for, but for a second") {
    for (const bool comes : {true, false}) {
      Job job;
      job.ends({signal(2, SIGHUP), signal(0, SIGHUP), signal(1, SIGHUP)});
      CHECK(job.supervisor.deadline() == job.clock.now() + 1s);
      CHECK(is_nothing(job.after(999ms)));
      CHECK_FALSE(job.supervisor.is_finished());
      CHECK(is_nothing(comes ? job.supervisor.signalled(SIGHUP) : job.after(1ms)));
      CHECK(job.supervisor.is_finished());
      CHECK(job.supervisor.exit_code() == (comes ? 129 : 1));
    }
    Job killed;
    killed.ends({signal(0, SIGKILL), code(1, 0), code(2, 0)});
    CHECK(killed.supervisor.is_finished());
  }

  TEST_CASE("a rank that is done before it joined, while others join, has left early") {
    RankExit left = code(1, 0);
    left.has_joined = false;
    Job before;
    before.supervisor.joined(0);
    CHECK(before.ends({left}).tell->text.find("left early") != std::string::npos);
    Job after;
    CHECK(is_nothing(after.ends({left})));
    const auto actions = after.supervisor.joined(2);
    REQUIRE(actions.tell.has_value());
    CHECK(actions.tell->rank == 1);
    CHECK(actions.signals == Signals{{0, SIGTERM}, {2, SIGTERM}});
    // Where nobody joins, there is nothing to leave.
    Job none;
    none.ends({left});
    RankExit other = code(0, 0);
    other.has_joined = false;
    none.ends({other});
    other.rank = 2;
    none.ends({other});
    CHECK(none.supervisor.exit_code() == 0);
  }

  TEST_CASE("a rank that is done without a farewell has failed; with 75 it has not") {
    RankExit lost = code(1, 0);
    lost.is_lost = true;
    Job job;
    CHECK(job.ends({lost}).tell->text == "ended with exit code 0 without a farewell to the job");
    lost.value = 75;
    Job saved;
    CHECK(is_nothing(saved.ends({lost})));
    CHECK(saved.finish_with(75) == 75);
  }

  TEST_CASE("a rank that hangs is killed at once, and the others are told what it did") {
    Job job;
    const auto actions = job.supervisor.overdue(1, "has been in barrier");
    CHECK(actions.tell->text == "has been in barrier");
    CHECK(actions.signals == Signals{{0, SIGTERM}, {2, SIGTERM}, {1, SIGKILL}});
    CHECK(is_nothing(job.ends({signal(1, SIGKILL)})));
    CHECK(job.supervisor.failure()->text == "has been in barrier");
    // It has ended: nothing is sent to a number that may be another's.
    CHECK(is_nothing(job.supervisor.overdue(1, "again")));
    CHECK(job.finish_with(SIGTERM, true) == 1);
  }

  TEST_CASE("a program that does not start ends all at once, with 2") {
    Job job;
    const auto actions = job.supervisor.not_started(0, "is not there");
    CHECK(actions.signals.back() == std::pair(2, SIGKILL));
    CHECK(job.finish_with(127) == 2);
    Job late;
    late.ends({code(1, 1)});
    late.supervisor.not_started(0, "is not there");
    CHECK(late.finish_with(127) == 1);
  }

  TEST_CASE("a rank that SIGKILL does not end is given up") {
    Job job;
    job.ends({code(0, 1)});
    CHECK(job.after(5s).signals.size() == 2);
    job.ends({signal(1, SIGKILL)});
    CHECK(is_nothing(job.after(29s)));
    CHECK_FALSE(job.supervisor.is_finished());
    CHECK(is_nothing(job.after(1s)));
    CHECK(job.supervisor.is_finished());
    CHECK(job.supervisor.is_running(2));
    CHECK(job.supervisor.exit_code() == 1);
  }

  TEST_CASE("however events are ordered, the job ends, and what is killed was running") {
    // All sequences of six events of these kinds.
    constexpr int kKinds = 9;
    int total = 1;
    for (int i = 0; i < 6; ++i) {
      total *= kKinds;
    }
    for (int sequence = 0; sequence < total; ++sequence) {
      Job job;
      int rest = sequence;
      const auto check_running = [&](const Supervisor::Actions& actions) {
        for (const auto& [rank, number] : actions.signals) {
          if (!job.supervisor.is_running(rank)) {
            FAIL("sequence ", sequence, ": signal ", number, " to rank ", rank);
          }
        }
      };
      for (int event = 0; event < 6; ++event, rest /= kKinds) {
        const int kind = rest % kKinds;
        if (kind < 6 && job.supervisor.is_running(kind % 3)) {
          check_running(job.ends({kind < 3 ? code(kind, 0) : signal(kind % 3, SIGSEGV)}));
        } else if (kind == 6) {
          check_running(job.supervisor.signalled(SIGTERM));
        } else if (kind == 7) {
          check_running(job.supervisor.signalled(SIGINT));
        } else if (kind == 8) {
          check_running(job.after(3s));
        }
      }
      // A job that was asked to end, or has failed, has killed all within the longest time.
      const bool must_end = job.supervisor.failure() || job.supervisor.stop_signal() != 0;
      check_running(job.after(10s));
      check_running(job.after(30s));
      if (must_end && !job.supervisor.is_finished()) {
        FAIL("sequence ", sequence, " goes on");
      }
      if (job.supervisor.failure() && job.supervisor.exit_code() != 1) {
        FAIL("sequence ", sequence, " has exit code ", job.supervisor.exit_code());
      }
    }
  }
}

}  // namespace fsdptrain::tools
