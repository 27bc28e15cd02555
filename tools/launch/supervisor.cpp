#include "tools/launch/supervisor.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "runtime/base/process.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {
namespace {

using namespace std::chrono_literals;

// Between the failure of a rank and the end of the others.
constexpr comm::Nanoseconds kGrace = 5s;
// After SIGKILL: what is there then waits in the system for a device or a network.
constexpr comm::Nanoseconds kReapPatience = 30s;
// Between the end of the first process of a job that a scheduler signals, and the last signal.
constexpr comm::Nanoseconds kLateSignal = 1s;
constexpr std::array kStopSignals{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
constexpr int kSaved = static_cast<int>(ExitCode::Saved);

// The two ways to end when a signal asks for it.
bool is_answer_to(const RankExit& end, int signal) {
  return end.value == (end.is_signal ? signal : static_cast<int>(ExitCode::Signalled) + signal);
}

}  // namespace

std::string describe(const RankExit& end) {
  return to_string(ProcessEnd{end.value, end.is_signal});
}

Supervisor::Supervisor(const Options& options, const comm::Clock& clock)
    : options_(options), clock_(clock), ranks_(index(options.num_ranks)) {}

bool Supervisor::is_failure(const RankExit& end) const {
  if (end.is_signal || (end.value != 0 && end.value != kSaved)) {
    return phase_ != Phase::Stopping || !(is_answer_to(end, stop_signal_) || has_killed_);
  }
  return end.value == 0 && end.is_lost && phase_ != Phase::Stopping;
}

RankFailure Supervisor::cause_of(const std::vector<RankExit>& failed,
                                 const std::optional<RankFailure>& reported) const {
  const auto named = [](const RankExit& end) {
    return RankFailure{
        end.rank,
        describe(end) + (end.value == 0 && !end.is_signal ? " without a farewell to the job" : "")};
  };
  auto found = std::ranges::find_if(failed, &RankExit::is_signal);
  if (found == failed.end()) {
    found = std::ranges::find_if(failed, &RankExit::was_inside);
  }
  if (found != failed.end()) {
    return named(*found);
  }
  return reported.value_or(named(failed.front()));
}

Supervisor::Actions Supervisor::exited(std::span<const RankExit> ends,
                                       const std::optional<RankFailure>& reported) {
  std::vector<RankExit> failed;
  for (const RankExit& end : ends) {
    Rank& rank = ranks_[index(end.rank)];
    rank.end = end;
    rank.has_joined = rank.has_joined || end.has_joined;
    if (is_failure(end)) {
      failed.push_back(end);
    }
  }
  Actions actions;
  if (!failed.empty()) {
    fail(cause_of(failed, reported), actions);
  } else if (const auto early = find_early()) {
    fail(*early, actions);
  } else if (const auto stopped = std::ranges::find_if(ends,
                                                       [this](const RankExit& end) {
                                                         return phase_ == Phase::Stopping &&
                                                                end.is_signal &&
                                                                !ranks_[index(end.rank)].has_joined;
                                                       });
             stopped != ends.end()) {
    // It is no failure, but nobody else would tell those that wait for it.
    actions.tell = RankFailure{stopped->rank, describe(*stopped) + " before it joined the job"};
  }
  return actions;
}

Supervisor::Actions Supervisor::joined(int rank) {
  Actions actions;
  ranks_[index(rank)].has_joined = true;
  if (const auto early = find_early()) {
    fail(*early, actions);
  }
  return actions;
}

std::optional<RankFailure> Supervisor::find_early() const {
  if (phase_ != Phase::Running || std::ranges::none_of(ranks_, &Rank::has_joined)) {
    return std::nullopt;
  }
  for (const Rank& rank : ranks_) {
    if (rank.end && !rank.has_joined && rank.end->value == 0) {
      return RankFailure{rank.end->rank,
                         "left early: it ended with exit code 0 before it joined the job"};
    }
  }
  return std::nullopt;
}

Supervisor::Actions Supervisor::signalled(int signal) {
  Actions actions;
  const bool is_late = phase_ == Phase::Failing && failure_ && end_of(failure_->rank) &&
                       is_answer_to(*end_of(failure_->rank), signal);
  if (is_late) {
    failure_.reset();
    late_until_.reset();
  }
  if (phase_ == Phase::Running || is_late) {
    phase_ = Phase::Stopping;
    stop_signal_ = signal;
    deadline_ = clock_.now() + options_.shutdown_timeout;
    send_all(signal, actions);
  } else if (signal == SIGINT) {
    kill_all(actions);
  } else if (phase_ == Phase::Stopping && signal != stop_signal_) {
    send_all(signal, actions);
  }
  return actions;
}

Supervisor::Actions Supervisor::overdue(int rank, std::string text) {
  Actions actions;
  if (is_running(rank)) {
    fail({rank, std::move(text)}, actions);
    // It may not even notice SIGTERM.
    actions.signals.emplace_back(rank, SIGKILL);
  }
  return actions;
}

Supervisor::Actions Supervisor::not_started(int rank, std::string text) {
  Actions actions;
  has_not_started_ = has_not_started_ || !failure_;
  fail({rank, std::move(text)}, actions);
  kill_all(actions);
  return actions;
}

Supervisor::Actions Supervisor::tick() {
  Actions actions;
  if (late_until_ && clock_.now() >= *late_until_) {
    late_until_.reset();
  }
  if (!deadline_ || clock_.now() < *deadline_) {
    return actions;
  }
  if (has_killed_) {
    has_given_up_ = true;
    deadline_.reset();
  } else {
    kill_all(actions);
  }
  return actions;
}

std::optional<comm::Nanoseconds> Supervisor::deadline() const {
  return late_until_ && deadline_ ? std::min(late_until_, deadline_) : deadline_;
}

bool Supervisor::may_be_stopped_by(const RankFailure& failure) const {
  const std::optional<RankExit>& end = end_of(failure.rank);
  return end &&
         std::ranges::any_of(kStopSignals, [&](int signal) { return is_answer_to(*end, signal); });
}

void Supervisor::fail(RankFailure failure, Actions& actions) {
  if (phase_ == Phase::Failing) {
    return;
  }
  actions.tell = failure;
  if (phase_ == Phase::Stopping) {
    // The others are told, so that none waits for it; the job ends as it was asked to.
    return;
  }
  failure_ = std::move(failure);
  phase_ = Phase::Failing;
  deadline_ = clock_.now() + kGrace;
  if (may_be_stopped_by(*failure_)) {
    late_until_ = clock_.now() + kLateSignal;
  }
  send_all(SIGTERM, actions);
  // It is about to end, and has something to say.
  std::erase_if(actions.signals, [this](const auto& sent) { return sent.first == failure_->rank; });
}

void Supervisor::send_all(int signal, Actions& actions) const {
  for (int rank = 0; rank < options_.num_ranks; ++rank) {
    if (is_running(rank)) {
      actions.signals.emplace_back(rank, signal);
    }
  }
}

void Supervisor::kill_all(Actions& actions) {
  send_all(SIGKILL, actions);
  has_killed_ = true;
  deadline_ = clock_.now() + kReapPatience;
}

bool Supervisor::is_finished() const {
  const auto has_ended = [](const Rank& rank) { return rank.end.has_value(); };
  return has_given_up_ || (std::ranges::all_of(ranks_, has_ended) && !late_until_);
}

int Supervisor::exit_code() const {
  const auto ended_with = [](int value) {
    return [value](const Rank& rank) {
      return rank.end && !rank.end->is_signal && rank.end->value == value;
    };
  };
  const bool all_well = std::ranges::all_of(
      ranks_, [&](const Rank& rank) { return ended_with(0)(rank) || ended_with(kSaved)(rank); });
  const bool is_saved = all_well && std::ranges::any_of(ranks_, ended_with(kSaved));
  if (has_not_started_) {
    return static_cast<int>(ExitCode::Refused);
  }
  if (failure_) {
    const std::optional<RankExit>& end = end_of(failure_->rank);
    const bool has_code = options_.propagate_exit_code && end && (end->is_signal || end->value > 0);
    return !has_code        ? static_cast<int>(ExitCode::Failed)
           : end->is_signal ? static_cast<int>(ExitCode::Signalled) + end->value
                            : end->value;
  }
  if (is_saved) {
    return kSaved;
  }
  if (stop_signal_ != 0) {
    return static_cast<int>(ExitCode::Signalled) + stop_signal_;
  }
  return static_cast<int>(has_given_up_ ? ExitCode::Failed : ExitCode::Done);
}

}  // namespace fsdptrain::tools
