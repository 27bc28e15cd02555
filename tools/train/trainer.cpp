#include "tools/train/trainer.h"

#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/rank_context.h"
#include "runtime/data/fingerprint.h"
#include "runtime/data/loader.h"
#include "runtime/optim/weight_average.h"
#include "tools/exit_code.h"
#include "tools/machine/fma_roof.h"
#include "tools/stop_signals.h"
#include "tools/stopwatch.h"
#include "tools/train/datasets.h"
#include "tools/train/evaluation.h"
#include "tools/train/flops.h"
#include "tools/train/from_config.h"
#include "tools/train/non_finite.h"
#include "tools/train/non_finite_policy.h"
#include "tools/train/reporter.h"
#include "tools/train/run_record.h"
#include "tools/train/samples.h"
#include "tools/train/train_step.h"
#include "tools/train/weights.h"

namespace fsdptrain::tools {
namespace {

constexpr double kSecondsToMeasureRate = 0.2;

// For run.json: the files that the run reads, which a renamed one does not replace.
std::vector<DataFile> describe(const Datasets& datasets) {
  std::vector<DataFile> files;
  for (const data::TokenSource* source : datasets.sources()) {
    for (const auto& file : source->files()) {
      const File bytes = file->open();
      files.push_back({.path = file->path().string(),
                       .nbytes = bytes.size(),
                       .num_tokens = file->num_tokens(),
                       .fingerprint = data::to_string(data::sampled_fingerprint(bytes))});
    }
  }
  return files;
}

// The same parameters with their averages, where they have one.
std::vector<nn::FlatParameters::Named> averaged(std::vector<nn::FlatParameters::Named> parameters,
                                                const optim::WeightAverage& average) {
  for (nn::FlatParameters::Named& parameter : parameters) {
    parameter.values =
        average.find(parameter.name, parameter.values.shape()).value_or(parameter.values);
  }
  return parameters;
}

// The objects of one run, in the order in which they need each other: nothing that can refuse the
// input comes behind the folder, which may replace an earlier run.
class Trainer {
 public:
  Trainer(const Config& config, const StopSignals& signals, RunFolder::Existing existing);

  // The exit code. Notes the end of the run, a failure too, in its record.
  int run();

 private:
  struct Interval {
    Stopwatch stopwatch;
    std::int64_t steps = 0;
  };

  // The rest of what can be refused, the initial weights and the average; then the folder is made.
  RunFolder checked_folder(RunFolder::Existing existing);
  int run_to_end();
  // Trains until the last step or a signal, and writes the weights; the signal, or 0.
  int train_all();
  void train_one(std::int64_t step);
  void report(std::int64_t step, double loss, double grad_norm, double lr);
  // Loss and samples.
  void validate(std::int64_t step);
  void validation_loss(std::int64_t step);
  void write_samples(std::int64_t step);
  void write_weights();
  void finish();
  // What was learned before a failure that did not come from the weights.
  void rescue_weights();
  void note_failure(const std::exception& error);

  Config config_;
  const StopSignals& signals_;
  Datasets datasets_;
  std::vector<DataFile> data_files_;
  data::Loader loader_;
  std::unique_ptr<models::Decoder> model_;
  nn::FlatParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  // Begins when the initial weights are there.
  std::optional<optim::WeightAverage> average_;
  optim::LrSchedule schedule_;
  TrainStep step_;
  NonFinitePolicy non_finite_;
  double flops_per_token_;
  double measured_rate_;
  RunFolder folder_;
  RunRecord record_;
  Reporter reporter_;
  Stopwatch stopwatch_;
  Interval interval_;
  std::int64_t steps_done_ = 0;
  // Whether write_weights() has begun.
  bool weights_tried_ = false;
};

Trainer::Trainer(const Config& config, const StopSignals& signals, RunFolder::Existing existing)
    : config_(config),
      signals_(signals),
      datasets_(open_datasets(config)),
      data_files_(describe(datasets_)),
      loader_(make_loader(config, datasets_)),
      model_(build_model(config)),
      parameters_(*model_, parameter_options(config, Device::cpu())),
      optimizer_(build_optimizer(config.optimizer, parameters_.chunks())),
      schedule_(build_schedule(config)),
      step_(*model_, parameters_, *optimizer_, Device::cpu(),
            {.grad_clip = config.train.grad_clip,
             .label_smoothing = config.train.label_smoothing,
             .z_loss = config.train.z_loss}),
      non_finite_(config.train),
      flops_per_token_(flops_per_token(config)),
      measured_rate_(measure_fma_rate(kSecondsToMeasureRate)),
      folder_(checked_folder(existing)),
      record_(folder_.record(), {.data = data_files_,
                                 .num_parameters = parameters_.num_parameters(),
                                 .flops_per_token = flops_per_token_,
                                 .measured_rate = measured_rate_}),
      reporter_(folder_, {.attempt = record_.attempt(),
                          .steps = config.train.steps,
                          .samples = !config.eval.prompts.empty()}) {
  current_context().random.seed = static_cast<std::uint64_t>(config.run.seed);
}

RunFolder Trainer::checked_folder(RunFolder::Existing existing) {
  check_prompts(config_.eval, datasets_.vocabulary().tokenizer);
  if (!config_.model.init_from.empty()) {
    load_weights(config_.model.init_from, parameters_);
  }
  // The tokens that the run begins with: files that are damaged throughout show it here.
  if (config_.train.steps > 0) {
    loader_.micro_batch(0, 0);
  }
  for (const auto& dataset : datasets_.validation) {
    data::sequential_batch(*dataset, 0, 1);
  }
  if (config_.train.ema_decay > 0) {
    average_.emplace(parameters_.chunks(), config_.train.ema_decay);
  }
  return RunFolder::create(config_, existing);
}

int Trainer::run_to_end() {
  try {
    folder_.write_config(config_);
    const int signal = train_all();
    const int exit_code = static_cast<int>(ExitCode::Done) +
                          (signal == 0 ? 0 : static_cast<int>(ExitCode::Signalled) + signal);
    if (signal == 0) {
      reporter_.check_complete(folder_.weights().string());
    }
    record_.end({.status = signal == 0 ? RunStatus::Done : RunStatus::Stopped,
                 .exit_code = exit_code,
                 .steps = steps_done_,
                 .seconds = stopwatch_.seconds()});
    return exit_code;
  } catch (const PathError& error) {
    // Files could be made in the folder when the run began: it is no mistake of the user's.
    throw IoError(error.what());
  }
}

int Trainer::run() {
  try {
    return run_to_end();
  } catch (const std::exception& error) {
    rescue_weights();
    note_failure(error);
    throw;
  }
}

void Trainer::rescue_weights() {
  if (steps_done_ == 0 || weights_tried_ || !non_finite_parameter(parameters_).empty()) {
    return;
  }
  try {
    write_weights();
    reporter_.warning(fmt::format("the run fails after step {}: its weights are in {}", steps_done_,
                                  folder_.weights().string()));
  } catch (const IoError& unwritten) {
    // The failure itself says more than that they could not be written.
    reporter_.warning(unwritten.what());
  }
}

void Trainer::note_failure(const std::exception& error) {
  try {
    record_.end({.status = RunStatus::Failed,
                 .exit_code = exit_code_of(error),
                 .steps = steps_done_,
                 .seconds = stopwatch_.seconds(),
                 .error = error.what()});
  } catch (const IoError& unwritten) {
    // The failure itself says more than that it could not be noted.
    reporter_.warning(unwritten.what());
  }
}

int Trainer::train_all() {
  reporter_.line(
      fmt::format("{}: {:.2f} M parameters, {} training and {} validation tokens, isa {}, "
                  "{} threads",
                  config_.model.name, static_cast<double>(parameters_.num_parameters()) * 1e-6,
                  datasets_.num_training_tokens(), datasets_.num_validation_tokens(),
                  name_of(current_context().isa()), current_context().pool().threads()));
  reporter_.line(
      fmt::format("rate measured at start: {:.1f} GFLOP/s of float32 multiply-add; a token counts "
                  "{:.4g} MFLOP: {}",
                  measured_rate_ * 1e-9, flops_per_token_ * 1e-6, kFlopsConvention));
  stopwatch_ = {};
  interval_ = {};
  while (steps_done_ < config_.train.steps && signals_.pending() == 0) {
    const std::int64_t step = steps_done_;
    train_one(step);
    ++steps_done_;
    reporter_.progress(steps_done_);
    const bool last = steps_done_ == config_.train.steps;
    const bool due = config_.eval.every > 0 && steps_done_ % config_.eval.every == 0;
    if (signals_.pending() == 0 && (last || due)) {
      validate(step);
    }
  }
  // One that arrives from here on comes too late: the run is done.
  const int signal = signals_.pending();
  finish();
  if (signal != 0) {
    reporter_.warning(
        fmt::format("stopped by signal {} after step {} of {}: weights and metrics are written",
                    signal, steps_done_, config_.train.steps));
  }
  return signal;
}

void Trainer::train_one(std::int64_t step) {
  std::vector<data::Batch> micro_batches;
  for (std::int64_t index = 0; index < loader_.num_micro_batches(); ++index) {
    micro_batches.push_back(loader_.micro_batch(static_cast<std::uint64_t>(step), index));
  }
  const double lr = schedule_.at(step);
  const auto number = static_cast<std::uint64_t>(step);
  const TrainStep::Result result = step_.forward_backward(micro_batches, number);
  ++interval_.steps;
  if (!result.loss.defined()) {
    reporter_.warning(
        fmt::format("step {} of {} has no target: each of its tokens ends a document: no update",
                    step + 1, config_.train.steps));
    return;
  }
  const double loss = result.loss.item();
  const double grad_norm = result.grad_norm.item();
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    non_finite_.react({step_, parameters_, micro_batches, number, loss, grad_norm}, reporter_,
                      [this] { write_weights(); });
    return;
  }
  non_finite_.passed();
  step_.update(lr);
  if (average_) {
    average_->update(parameters_.chunks());
  }
  if ((step + 1) % config_.log.every == 0 || step == 0 || step + 1 == config_.train.steps) {
    report(step, loss, grad_norm, lr);
  }
}

void Trainer::report(std::int64_t step, double loss, double grad_norm, double lr) {
  const double tokens =
      static_cast<double>(interval_.steps * config_.train.global_batch * config_.train.seq_len);
  const double rate = tokens / interval_.stopwatch.seconds();
  const double elapsed = stopwatch_.seconds();
  const MemoryCounters& memory = current_context().allocator(Device::cpu()).counters();
  reporter_.step({.step = step + 1,
                  .loss = loss,
                  .lr = lr,
                  .grad_norm = grad_norm,
                  .tokens_per_second = rate,
                  .utilization = rate * flops_per_token_ / measured_rate_,
                  .memory_live = memory.live_total,
                  .memory_peak = memory.peak_total,
                  .seconds = elapsed,
                  .seconds_left = elapsed / static_cast<double>(step + 1) *
                                  static_cast<double>(config_.train.steps - step - 1)});
  interval_ = {};
}

void Trainer::validate(std::int64_t step) {
  validation_loss(step);
  write_samples(step);
  interval_ = {};
}

void Trainer::validation_loss(std::int64_t step) {
  if (datasets_.validation.empty()) {
    return;
  }
  const LossTotals totals =
      evaluate(*model_, datasets_.validation,
               {.batch = config_.train.micro_batch, .max_batches = config_.eval.batches});
  if (totals.num_targets == 0) {
    reporter_.warning(fmt::format(
        "validation behind step {} of {} has no target: each of its tokens ends a document",
        step + 1, config_.train.steps));
    return;
  }
  check(std::isfinite(totals.mean()),
        "train: the validation loss behind step {} is {}: lower optimizer.lr", step + 1,
        totals.mean());
  reporter_.validation(step + 1, totals.mean());
}

void Trainer::write_samples(std::int64_t step) {
  const auto seed = static_cast<std::uint64_t>(config_.run.seed);
  const auto stops = [this] { return signals_.pending() != 0; };
  for (const std::string& prompt : config_.eval.prompts) {
    const std::string text = sample_text(*model_, prompt, config_.eval, seed, stops);
    if (stops()) {
      return;
    }
    reporter_.sample({.step = step + 1, .prompt = prompt, .text = text, .seed = seed});
  }
}

void Trainer::write_weights() {
  weights_tried_ = true;
  const WeightsInfo info{.config = config_, .vocabulary = datasets_.vocabulary()};
  save_weights(folder_.weights(), parameters_.named(), info);
  if (average_) {
    save_weights(folder_.average_weights(), averaged(parameters_.named(), *average_), info);
  }
}

void Trainer::finish() {
  write_weights();
  const MemoryCounters& memory = current_context().allocator(Device::cpu()).counters();
  reporter_.line(fmt::format("done in {}: weights in {}, peak memory {:.1f} MiB",
                             as_duration(stopwatch_.seconds()), folder_.weights().string(),
                             static_cast<double>(memory.peak_total) / (1024.0 * 1024.0)));
}

}  // namespace

int train(const Config& config, RunFolder::Existing existing) {
  // First of all: building a large model to be refused then would take minutes.
  RunFolder::check_free(config, existing);
  // Before the threads of the context, so that they hold the signals back too.
  const StopSignals signals;
  RankContext context({.threads = static_cast<int>(config.run.threads)});
  const ContextGuard guard(context);
  return Trainer(config, signals, existing).run();
}

}  // namespace fsdptrain::tools
