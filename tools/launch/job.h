#pragma once

#include <string>
#include <vector>

#include "comm/clock.h"
#include "tools/launch/console.h"
#include "tools/launch/job_folder.h"
#include "tools/launch/job_report.h"
#include "tools/launch/options.h"
#include "tools/launch/ranks.h"
#include "tools/launch/signal_intake.h"
#include "tools/launch/supervisor.h"

namespace fsdptrain::tools {

// One job, from the start of its ranks to their end: what happens goes to the supervisor, and what
// that answers is done.
class Job {
 public:
  // Starts the ranks. All of these outlive the job. Errors as launch().
  Job(const LaunchOptions& options, const SignalIntake& signals, Console& console);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Until all have ended; the exit code of the launcher, as far as it is known before the last of
  // the output is written.
  int run();
  // Why the program could not be started; empty: it could.
  const std::string& refusal() const { return refusal_; }

 private:
  // All that can be done without waiting. Signals first: a rank may have had one, too.
  void turn();
  comm::Nanoseconds next_wake() const;
  void wait(comm::Nanoseconds timeout);
  void take_signal(int signal);
  void say_where_all_are();
  void take_start(LaunchedRank& rank);
  static void take_output(LaunchedRank& rank);
  void take_ends();
  void look();
  void apply(const Supervisor::Actions& actions);
  // Of a job that is stopped: a report says it of one that has failed.
  void say_killed(const Supervisor::Actions& actions);
  // What the ranks started and did not end: a program behind a shell, for one. After a signal to
  // the job it has the time of a shutdown, too.
  void end_left_overs();
  // The signals that came meanwhile.
  std::vector<int> pass_output(comm::Nanoseconds timeout);
  // Says once for each what cannot be written.
  void say_losses();
  int conclude();

  const LaunchOptions& options_;
  const SignalIntake& signals_;
  const comm::Clock& clock_ = comm::monotonic_clock();
  comm::Nanoseconds next_look_;
  Console& console_;
  JobFolder folder_;
  LaunchedRanks ranks_;
  Supervisor supervisor_;
  JobReport report_;
  std::string refusal_;
  bool has_lost_ = false;
  bool has_lost_log_ = false;
};

}  // namespace fsdptrain::tools
