#include "tools/train/train.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <optional>

#include "comm/init/run_rank.h"
#include "comm/nccl/connect.h"
#include "comm/run_ranks.h"
#include "comm/world.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/processors.h"
#include "tools/config/fields.h"
#include "tools/exit_code.h"
#include "tools/standard_output.h"
#include "tools/stop_signals.h"
#include "tools/train/data_parallel.h"
#include "tools/train/from_config.h"
#include "tools/train/trainer.h"

namespace fsdptrain::tools {
namespace {

comm::World::Options world_options(const Config& config) {
  return {.device = device_of(config.run),
          .streams = streams_of(config.comm),
          .timeout = std::chrono::seconds(config.comm.timeout),
          .checks = comm::checks_from_environment()};
}

// Nothing, where the run was done before.
using MaybeOutcome = std::optional<RunOutcome>;

// On one rank.
MaybeOutcome train_rank(const Config& config, const TrainOptions& options, Setting setting,
                        comm::World& world) {
  setting.start = begin_run(config, options.folder, world, setting.account);
  if (!setting.start.is_done) {
    return Trainer(setting, world).run();
  }
  if (setting.account != nullptr) {
    const RunFolder& folder = *setting.account->folder;
    print_now(
        fmt::format("{}: the run is done, after {} steps: weights in {}; for another give "
                    "another run.dir, or --overwrite\n",
                    folder.path().string(), folder.earlier()->steps(), folder.weights().string()));
  }
  return std::nullopt;
}

// The ranks are threads of this process.
MaybeOutcome train_threads(const Config& config, const TrainOptions& options,
                           const StopSignals& signals, Account& account) {
  const std::optional<comm::BreakPoint> break_point =
      comm::read_break_point(comm::environment_variable, options.threads_as_ranks);
  comm::WhereSignal where;
  const int threads =
      config.run.threads == 0 ? num_processors() : static_cast<int>(config.run.threads);
  comm::ThreadRanks ranks{.num_ranks = options.threads_as_ranks,
                          .threads_per_rank = std::max(threads / options.threads_as_ranks, 1),
                          .world = world_options(config)};
  if (break_point) {
    ranks.world.timeout = comm::Nanoseconds::max();
  }
  MaybeOutcome outcome;
  comm::run_ranks(ranks, [&](comm::World& world) {
    const comm::WatchedRing watched(where, world.flight_ring().memory().descriptor());
    comm::DebugBreak debug_break(break_point, world.rank());
    const MaybeOutcome mine = train_rank(config, options,
                                         {.config = config,
                                          .signals = signals,
                                          .account = world.rank() == 0 ? &account : nullptr,
                                          .debug_break = debug_break,
                                          .compare_memory = options.compare_memory},
                                         world);
    // The same on all of them.
    if (world.rank() == 0) {
      outcome = mine;
    }
  });
  return outcome;
}

// Notes how the run ended; the exit code.
int end_run(Account& account, const MaybeOutcome& outcome) {
  if (!outcome) {
    return static_cast<int>(ExitCode::Done);
  }
  const int signal = outcome->signal;
  const int exit_code = signal == 0         ? static_cast<int>(ExitCode::Done)
                        : outcome->is_saved ? static_cast<int>(ExitCode::Saved)
                                            : static_cast<int>(ExitCode::Signalled) + signal;
  // On all ranks but 0 there is nothing to note.
  if (account.record) {
    account.record->end({.status = signal == 0 ? RunStatus::Done : RunStatus::Stopped,
                         .exit_code = exit_code,
                         .steps = account.steps_done,
                         .seconds = account.stopwatch.seconds()});
  }
  return exit_code;
}

// This process is one rank of a job; the exit code.
int train_process(const Config& config, const TrainOptions& options,
                  const comm::Membership& membership, const StopSignals& signals,
                  Account& account) {
  comm::JobOptions job_options{.world = world_options(config),
                               .threads = static_cast<int>(config.run.threads),
                               .join_timeout = std::chrono::seconds(config.comm.timeout),
                               .check_stop = [&signals] { signals.check_stop(); }};
  if (job_options.world.device != Device::cpu()) {
    job_options.world.device.index += membership.local_rank;
  }
  return comm::run_rank(job_options, [&](comm::Job& job) {
    const MaybeOutcome outcome = train_rank(config, options,
                                            {.config = config,
                                             .signals = signals,
                                             .account = membership.rank == 0 ? &account : nullptr,
                                             .debug_break = job.debug_break(),
                                             .is_bound = comm::is_bound(membership),
                                             .compare_memory = options.compare_memory},
                                            job.world());
    // All is written: when one rank has ended, its launcher may kill the others.
    return end_run(account, outcome);
  });
}

// While the process has one thread.
void prepare_device(const RunConfig& run) {
  if (device_of(run).type != DeviceType::Cuda) {
    return;
  }
  try {
    comm::nccl::prepare_environment();
  } catch (DeviceError& error) {
    error.add_context(fmt::format("run.device = {}", toml_text(run.device)));
    throw;
  }
}

void note_failure(Account& account, const std::exception& error) {
  if (!account.record) {
    return;
  }
  try {
    account.record->end({.status = RunStatus::Failed,
                         .exit_code = exit_code_of(error),
                         .steps = account.steps_done,
                         .seconds = account.stopwatch.seconds(),
                         .error = error.what()});
  } catch (const IoError& unwritten) {
    // The failure itself says more than that it could not be noted.
    log_warning("{}", unwritten.what());
  }
}

}  // namespace

int train(const Config& config, const TrainOptions& options) {
  const comm::Membership membership = comm::read_environment(comm::environment_variable);
  const bool has_threads = options.threads_as_ranks > 0;
  check<ConfigError>(
      !has_threads || membership.launcher == comm::Launcher::None,
      "--threads-as-ranks: this process is a rank itself ({}): leave the option out, "
      "or start it without a launcher",
      comm::to_string(membership));
  num_micro_batches_of_rank(
      config.train, has_threads ? options.threads_as_ranks : membership.size,
      has_threads ? "--threads-as-ranks" : comm::name_of(membership.launcher));
  // Before all else: building a large model to be refused then would take minutes.
  RunFolder::check_free(config, options.folder);
  prepare_device(config.run);
  // Before all other threads, so that they hold the signals back too.
  const StopSignals signals;
  Account account;
  try {
    return has_threads ? end_run(account, train_threads(config, options, signals, account))
                       : train_process(config, options, membership, signals, account);
  } catch (const PathError& error) {
    if (!account.record) {
      throw;
    }
    // Files could be made in the folder when the run began: it is no mistake of the user's.
    const IoError failure(error.what());
    note_failure(account, failure);
    throw failure;
  } catch (const std::exception& error) {
    note_failure(account, error);
    throw;
  }
}

}  // namespace fsdptrain::tools
