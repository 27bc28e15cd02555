#include "tools/run/run_report.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/processors.h"
#include "runtime/base/rank_context.h"
#include "tools/machine/fma_roof.h"
#include "tools/train/flops.h"

namespace fsdptrain::tools {
namespace {

constexpr double kSecondsToMeasureRate = 0.2;

// Operations per second of as many threads as all ranks together keep busy; the ranks themselves
// would measure more than there is where they are more than the processors. One that is bound to
// its part of those measures that.
double measure_rate(int num_ranks, bool is_bound) {
  const int threads = (is_bound ? 1 : num_ranks) * current_context().pool().threads();
  RankContext context({.threads = std::min(threads, num_processors())});
  const ContextGuard guard(context);
  return measure_fma_rate(kSecondsToMeasureRate) * (is_bound ? num_ranks : 1);
}

}  // namespace

RunReport::RunReport(const Config& config, comm::World& world, Options options)
    : config_(config),
      world_(world),
      options_(std::move(options)),
      flops_per_token_(tools::flops_per_token(config)),
      waits_(world) {
  if (options_.tells && world.device() == Device::cpu()) {
    measured_rate_ = measure_rate(world.size(), options_.is_bound);
  }
}

void RunReport::tell_start(const std::optional<std::filesystem::path>& moved,
                           const std::vector<ConfigChange>& changes,
                           const std::optional<checkpoint::Loaded>& loaded, std::int64_t attempt) {
  if (moved) {
    reporter_.line(
        fmt::format("the run that was in {} is in {}", config_.run.dir, moved->string()));
  }
  for (const ConfigChange& change : changes) {
    reporter_.line(fmt::format("changed: {}", to_string(change)));
  }
  if (loaded) {
    for (const std::string& skipped : loaded->skipped) {
      reporter_.warning(fmt::format("not taken: {}", skipped));
    }
    for (const std::string& difference : loaded->differences) {
      reporter_.warning(fmt::format("{}: {}", loaded->folder.string(), difference));
    }
    reporter_.line(fmt::format("attempt {} goes on from {}, which {} {} saved", attempt,
                               loaded->folder.string(), loaded->num_ranks,
                               loaded->num_ranks == 1 ? "rank" : "ranks"));
  } else if (attempt > 1) {
    reporter_.line(fmt::format("attempt {} begins anew: no checkpoint was there", attempt));
  }
}

void RunReport::begin(const Datasets& datasets, std::int64_t num_parameters,
                      std::int64_t steps_done) {
  reporter_.line(fmt::format(
      "{}: {:.2f} M parameters, {} training and {} validation tokens, {}, isa {}, "
      "{} ranks x {} threads",
      config_.model.name, static_cast<double>(num_parameters) * 1e-6,
      datasets.num_training_tokens(), datasets.num_validation_tokens(), world_.device(),
      name_of(current_context().isa()), world_.size(), current_context().pool().threads()));
  if (measured_rate_) {
    reporter_.line(fmt::format(
        "rate measured at start: {:.1f} GFLOP/s of float32 multiply-add; a token counts "
        "{:.4g} MFLOP: {}",
        *measured_rate_ * 1e-9, flops_per_token_ * 1e-6, kFlopsConvention));
  }
  first_step_ = steps_done;
  stopwatch_ = {};
  begin_interval();
}

void RunReport::begin_interval() {
  interval_ = {};
  waits_.restart();
}

std::int64_t RunReport::sum(std::int64_t value) {
  const Tensor sum = Tensor::zeros({1}, DType::Int64);
  sum.mutable_values<std::int64_t>()[0] = value;
  world_.control().issue(comm::all_reduce(sum)).wait();
  return sum.values<std::int64_t>()[0];
}

void RunReport::step(std::int64_t steps_done, double loss, double grad_norm, double lr) {
  const double tokens =
      static_cast<double>(interval_.steps * config_.train.global_batch * config_.train.seq_len);
  const double rate = tokens / interval_.stopwatch.seconds();
  const double elapsed = seconds();
  const MemoryCounters& memory = current_context().allocator(world_.device()).counters();
  const std::int64_t memory_live = sum(memory.live_total);
  const std::int64_t memory_peak = sum(memory.peak_total);
  reporter_.step({.step = steps_done,
                  .loss = loss,
                  .lr = lr,
                  .grad_norm = grad_norm,
                  .tokens_per_second = rate,
                  .utilization = measured_rate_
                                     ? std::optional(rate * flops_per_token_ / *measured_rate_)
                                     : std::nullopt,
                  .memory_live = memory_live,
                  .memory_peak = memory_peak,
                  .seconds = elapsed,
                  .seconds_left = elapsed / static_cast<double>(steps_done - first_step_) *
                                  static_cast<double>(config_.train.steps - steps_done),
                  .waits = waits_.summary()});
  begin_interval();
}

void RunReport::compare_memory(const MemoryCounters& measured) {
  try {
    reporter_.line(options_.compare_memory(config_, {world_.rank(), world_.size()},
                                           current_context().pool().threads(), measured));
  } catch (const Error& error) {
    // The run is done.
    reporter_.warning(error.what());
  }
}

void RunReport::end(std::int64_t steps_done, const std::string& weights) {
  const MemoryCounters memory = current_context().allocator(world_.device()).counters();
  const std::int64_t memory_peak = sum(memory.peak_total);
  if (!options_.tells) {
    return;
  }
  reporter_.line(fmt::format("done in {}: weights in {}, peak memory {:.1f} MiB",
                             as_duration(seconds()), weights,
                             static_cast<double>(memory_peak) / (1024.0 * 1024.0)));
  // Steps are alike from the second on; of GPUs less is planned.
  if (options_.compare_memory && world_.device() == Device::cpu() &&
      steps_done - first_step_ >= 2) {
    compare_memory(memory);
  }
}

}  // namespace fsdptrain::tools
