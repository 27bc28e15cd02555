#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/clock.h"

namespace fsdptrain::tools {

// How a rank's process ended, and what it left behind.
struct RankExit {
  int rank = 0;
  // The exit code; of a process that a signal ended, the signal.
  int value = 0;
  bool is_signal = false;
  // Whether it had joined the job.
  bool has_joined = false;
  // Whether it ended as a member of the job, with no farewell.
  bool is_lost = false;
  // Whether it ended in the midst of its work: nothing of it was unwound.
  bool was_inside = false;
};

// "ended with exit code 3", "was ended by signal 11 (SIGSEGV)".
std::string describe(const RankExit& end);

struct RankFailure {
  int rank = 0;
  // What is behind "rank R ": "was ended by signal 9 (SIGKILL)", "failed: no more tokens".
  std::string text;
};

// What becomes of a job whose ranks end, fail, hang or are stopped: a state machine without any
// I/O. Time is the clock's.
//
// A rank that ends with 0, or with 75 (come again: its state is saved), has done its part, and the
// others go on. Any other end is a failure: the others are told, get SIGTERM, and SIGKILL 5 s
// later, as does a rank that has told of its failure and still runs. A signal to the launcher goes
// to all ranks; those that are there at the end of the time for a shutdown get SIGKILL, and so do
// all at once when SIGINT comes again.
class Supervisor {
 public:
  struct Options {
    int num_ranks = 1;
    comm::Nanoseconds shutdown_timeout = std::chrono::seconds(30);
    bool propagate_exit_code = false;
  };

  // What has to be done now, in this order.
  struct Actions {
    // Tell all ranks of it.
    std::optional<RankFailure> tell = std::nullopt;
    // (rank, signal), to ranks that run.
    std::vector<std::pair<int, int>> signals = {};
  };

  // `clock` outlives the supervisor.
  Supervisor(const Options& options, const comm::Clock& clock);

  // These ranks have ended since the last call. Where several fail at once, the cause is the one
  // that a signal ended, then the one that ended in the midst of its work, then the one that ranks
  // have told each other of (`reported`), which may still run.
  Actions exited(std::span<const RankExit> ends, const std::optional<RankFailure>& reported);
  // This rank has joined the job.
  Actions joined(int rank);
  // A signal came: SIGINT, SIGTERM or any other that ends the job.
  Actions signalled(int signal);
  // The rank does not do what it must by itself any more; it is ended.
  Actions overdue(int rank, std::string text);
  // The program of this rank could not be started.
  Actions not_started(int rank, std::string text);
  // Does what time has brought.
  Actions tick();

  // When tick() has something to do.
  std::optional<comm::Nanoseconds> deadline() const;
  bool is_running(int rank) const { return !ranks_[index(rank)].end; }
  // All ranks have ended, or what is left of them cannot be ended.
  bool is_finished() const;
  // Of the launcher, once it is finished (exit_code.h).
  int exit_code() const;

  // The failure that ended the job.
  const std::optional<RankFailure>& failure() const { return failure_; }
  bool has_not_started() const { return has_not_started_; }
  // Ranks have got SIGKILL.
  bool has_killed() const { return has_killed_; }
  // The signal that stopped the job, or 0.
  int stop_signal() const { return stop_signal_; }
  // How a rank ended, if it has.
  const std::optional<RankExit>& end_of(int rank) const { return ranks_[index(rank)].end; }

 private:
  enum class Phase : std::uint8_t { Running, Failing, Stopping };
  struct Rank {
    std::optional<RankExit> end = std::nullopt;
    bool has_joined = false;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  bool is_failure(const RankExit& end) const;
  // Of those that have ended in a way that is one.
  RankFailure cause_of(const std::vector<RankExit>& failed,
                       const std::optional<RankFailure>& reported) const;
  // A rank that has left before it joined, while another has joined.
  std::optional<RankFailure> find_early() const;
  // Whether a signal to the whole job may have brought this failure.
  bool may_be_stopped_by(const RankFailure& failure) const;
  void fail(RankFailure failure, Actions& actions);
  void send_all(int signal, Actions& actions) const;
  void kill_all(Actions& actions);

  Options options_;
  const comm::Clock& clock_;
  Phase phase_ = Phase::Running;
  std::vector<Rank> ranks_;
  std::optional<RankFailure> failure_;
  bool has_not_started_ = false;
  int stop_signal_ = 0;
  bool has_killed_ = false;
  bool has_given_up_ = false;
  std::optional<comm::Nanoseconds> deadline_;
  // Until then, the launcher's own signal may come.
  std::optional<comm::Nanoseconds> late_until_;
};

}  // namespace fsdptrain::tools
