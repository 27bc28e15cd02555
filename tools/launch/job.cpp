#include "tools/launch/job.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <poll.h>

#include "comm/ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"
#include "tools/exit_code.h"
#include "tools/launch/exec_stage.h"
#include "tools/launch/report.h"

namespace fsdptrain::tools {
namespace {

using namespace std::chrono_literals;
using comm::Nanoseconds;

// Between two looks at the rings.
constexpr Nanoseconds kBetweenLooks = 1s;
// For what ranks started and left behind.
constexpr Nanoseconds kLeftOverGrace = 5s;
constexpr Nanoseconds kBetweenLeftOvers = 20ms;
// To write where a descriptor says that it takes bytes, and takes none.
constexpr Nanoseconds kBetweenTries = 20ms;

Supervisor::Options supervisor_options(const LaunchOptions& options) {
  return {.num_ranks = options.num_ranks,
          .shutdown_timeout = options.shutdown_timeout,
          .propagate_exit_code = options.propagate_exit_code};
}

}  // namespace

Job::Job(const LaunchOptions& options, const SignalIntake& signals, Console& console)
    : options_(options),
      signals_(signals),
      next_look_(clock_.now() + kBetweenLooks),
      console_(console),
      folder_(make_job_folder(options.log_dir)),
      ranks_({.launch = options, .job_id = folder_.job_id, .folder = folder_.path}, console_),
      supervisor_(supervisor_options(options), clock_),
      report_({.ranks = ranks_,
               .supervisor = supervisor_,
               .console = console_,
               .folder = folder_.path,
               .clock = clock_}) {}

int Job::run() {
  while (!supervisor_.is_finished()) {
    wait(next_wake());
    turn();
  }
  end_left_overs();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    ranks_.rank(rank).output->finish();
    ranks_.rank(rank).error->finish();
  }
  console_.progress("");
  return conclude();
}

void Job::turn() {
  for (const int signal : signals_.take()) {
    take_signal(signal);
  }
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    take_start(ranks_.rank(rank));
    take_output(ranks_.rank(rank));
  }
  take_ends();
  ranks_.reap();
  if (clock_.now() >= next_look_) {
    look();
    next_look_ = clock_.now() + kBetweenLooks;
  }
  apply(supervisor_.tick());
  console_.flush();
  say_losses();
}

Nanoseconds Job::next_wake() const {
  const Nanoseconds wake = std::min(next_look_, supervisor_.deadline().value_or(next_look_));
  return std::max(wake - clock_.now(), Nanoseconds{0});
}

void Job::wait(Nanoseconds timeout) {
  std::vector<pollfd> entries{{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0}};
  const auto add = [&entries](int descriptor, int events) {
    if (descriptor >= 0) {
      entries.push_back({.fd = descriptor, .events = static_cast<short>(events), .revents = 0});
    }
  };
  for (const StandardStream stream : {StandardStream::Output, StandardStream::Error}) {
    if (console_.sink(stream).is_stuck()) {
      timeout = std::min(timeout, kBetweenTries);
    } else if (console_.sink(stream).has_pending()) {
      add(console_.sink(stream).descriptor(), POLLOUT);
    }
  }
  for (int i = 0; i < ranks_.size(); ++i) {
    LaunchedRank& rank = ranks_.rank(i);
    add(rank.process.end.number(), POLLIN);
    add(rank.process.failure.number(), POLLIN);
    for (RankStream* stream : {&*rank.output, &*rank.error}) {
      add(stream->must_wait() ? -1 : stream->descriptor(), POLLIN);
    }
  }
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  ::poll(entries.data(), entries.size(), static_cast<int>(limit));
}

void Job::take_signal(int signal) {
  if (signal == SIGUSR2) {
    say_where_all_are();
  } else if (signal == SIGUSR1) {
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      ranks_.send(rank, signal);
    }
  } else {
    const bool is_first = supervisor_.stop_signal() == 0;
    const Supervisor::Actions actions = supervisor_.signalled(signal);
    const bool stops = is_first && supervisor_.stop_signal() != 0;
    console_.note(signal_note(signal, actions,
                              stops ? std::optional(options_.shutdown_timeout) : std::nullopt));
    apply(actions);
  }
}

void Job::say_where_all_are() {
  const std::string text = report_.where_all_are();
  if (text.empty()) {
    console_.note("no rank has joined the job, so where they are is not known");
  } else {
    console_.text(text);
  }
}

void Job::take_start(LaunchedRank& rank) {
  pollfd entry{.fd = rank.process.failure.number(), .events = POLLIN, .revents = 0};
  if (!rank.process.failure.is_open() || ::poll(&entry, 1, 0) <= 0) {
    return;
  }
  ExecFailure failure;
  if (::read(rank.process.failure.number(), &failure, sizeof failure) == sizeof failure) {
    const std::string text = explain(failure, options_.program.front());
    if (refusal_.empty()) {
      refusal_ = text;
    }
    apply(supervisor_.not_started(rank.number, text));
  }
  rank.process.failure.close();
}

void Job::take_output(LaunchedRank& rank) {
  for (RankStream* stream : {&*rank.output, &*rank.error}) {
    if (stream->is_open() && !stream->must_wait()) {
      stream->read_some();
    }
  }
}

void Job::take_ends() {
  std::vector<RankExit> ends;
  for (int i = 0; i < ranks_.size(); ++i) {
    LaunchedRank& rank = ranks_.rank(i);
    pollfd entry{.fd = rank.process.end.number(), .events = POLLIN, .revents = 0};
    if (!rank.process.end.is_open() || ::poll(&entry, 1, 0) <= 0) {
      continue;
    }
    if (const std::optional<RankExit> end = ranks_.take_end(rank)) {
      ends.push_back(*end);
      // What it printed last.
      take_output(rank);
    }
  }
  if (!ends.empty()) {
    apply(supervisor_.exited(ends, ranks_.reported()));
  }
}

void Job::look() {
  // Groups that have become empty since.
  ranks_.has_left_overs();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (!supervisor_.is_running(rank)) {
      continue;
    }
    if (ranks_.has_joined(rank)) {
      apply(supervisor_.joined(rank));
    }
    if (const auto overdue = report_.find_overdue(rank)) {
      apply(supervisor_.overdue(rank, *overdue));
    }
  }
}

void Job::apply(const Supervisor::Actions& actions) {
  if (actions.tell) {
    ranks_.tell(*actions.tell);
  }
  // Before the ranks end of it.
  const bool is_new = report_.note_failure();
  for (const auto& [rank, signal] : actions.signals) {
    ranks_.send(rank, signal);
  }
  say_killed(actions);
  if (is_new && !supervisor_.has_not_started()) {
    const RankFailure& failure = *supervisor_.failure();
    console_.note(
        fmt::format("rank {} {}; the others are told, and end", failure.rank, failure.text));
  }
}

void Job::say_killed(const Supervisor::Actions& actions) {
  std::vector<int> killed;
  for (const auto& [rank, signal] : actions.signals) {
    if (signal == SIGKILL) {
      killed.push_back(rank);
    }
  }
  if (supervisor_.stop_signal() != 0 && !killed.empty()) {
    console_.note(fmt::format("{} had not ended and {} killed (SIGKILL)", comm::named_ranks(killed),
                              killed.size() > 1 ? "are" : "is"));
  }
}

void Job::end_left_overs() {
  const bool is_stopped = supervisor_.stop_signal() != 0;
  const bool has_time = !is_stopped || !supervisor_.has_killed();
  ranks_.reap();
  if (has_time && ranks_.send_left_overs(is_stopped ? supervisor_.stop_signal() : SIGTERM)) {
    const Nanoseconds end =
        clock_.now() + (is_stopped ? options_.shutdown_timeout : kLeftOverGrace);
    bool is_over = false;
    while (!is_over && clock_.now() < end && ranks_.send_left_overs(0)) {
      const std::vector<int> signals = pass_output(kBetweenLeftOvers);
      is_over = std::ranges::find(signals, SIGINT) != signals.end();
    }
  }
  // They end at once; one of them may have started another meanwhile.
  const Nanoseconds patience = clock_.now() + kLeftOverGrace;
  while (ranks_.send_left_overs(SIGKILL) && clock_.now() < patience) {
    pass_output(kBetweenLeftOvers);
  }
  ranks_.reap();
}

std::vector<int> Job::pass_output(Nanoseconds timeout) {
  wait(timeout);
  std::vector<int> signals = signals_.take();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    take_output(ranks_.rank(rank));
  }
  ranks_.reap();
  console_.flush();
  return signals;
}

void Job::say_losses() {
  has_lost_ = console_.has_lost_output() || has_lost_;
  for (int i = 0; i < ranks_.size() && !has_lost_log_; ++i) {
    LaunchedRank& rank = ranks_.rank(i);
    for (const RankStream* stream : {&*rank.output, &*rank.error}) {
      if (!has_lost_log_ && !stream->file_error().empty()) {
        has_lost_log_ = true;
        console_.note(
            fmt::format("{}; the job goes on, and its exit code will be 1", stream->file_error()));
      }
    }
  }
}

int Job::conclude() {
  report_.conclude();
  if (!folder_.path.empty()) {
    console_.note(fmt::format("logs are in {}", printable(folder_.path.native())));
  }
  console_.flush();
  say_losses();
  const int code = supervisor_.exit_code();
  const bool is_done = code == static_cast<int>(ExitCode::Done);
  return is_done && (has_lost_ || has_lost_log_) ? static_cast<int>(ExitCode::Failed) : code;
}

}  // namespace fsdptrain::tools
