#include "tools/train/trainer.h"

#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/rank_context.h"
#include "runtime/data/loader.h"
#include "tools/exit_code.h"
#include "tools/standard_output.h"
#include "tools/stop_signals.h"
#include "tools/train/from_config.h"
#include "tools/train/metrics.h"
#include "tools/train/non_finite_policy.h"
#include "tools/train/run_folder.h"
#include "tools/train/train_step.h"
#include "tools/train/weights.h"

namespace fsdptrain::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string as_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::shared_ptr<const data::TokenFile> open_tokens(const Config& config) {
  auto file = std::make_shared<const data::TokenFile>(config.data.tokens.front());
  check<ConfigError>(file->header().vocab_size <= config.model.vocab_size,
                     "model.vocab_size: {} is less than the {} of {}: set it to that",
                     config.model.vocab_size, file->header().vocab_size,
                     config.data.tokens.front());
  return file;
}

// The objects of one run, in the order in which they need each other.
class Trainer {
 public:
  Trainer(const Config& config, StopSignals& signals);

  int run();

 private:
  struct Interval {
    Clock::time_point start = Clock::now();
    std::int64_t steps = 0;
  };

  // Prints a line. Where that fails the run goes on, since metrics.jsonl says the same, and fails
  // at its end, with the weights written.
  void print_line(const std::string& line);
  void train_one(std::int64_t step);
  void report(std::int64_t step, double loss, double grad_norm, double lr);
  void validate(std::int64_t step);
  void write_weights();
  void finish();

  Config config_;
  StopSignals& signals_;
  std::shared_ptr<const data::TokenFile> file_;
  data::TokenSplit split_;
  std::shared_ptr<const data::TokenDataset> training_;
  std::shared_ptr<const data::TokenDataset> validation_;
  data::Loader loader_;
  std::unique_ptr<models::Decoder> model_;
  nn::FlatParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LrSchedule schedule_;
  TrainStep step_;
  NonFinitePolicy non_finite_;
  RunFolder folder_;
  MetricsWriter metrics_;
  Clock::time_point start_ = Clock::now();
  Interval interval_;
  bool prints_ = true;
};

Trainer::Trainer(const Config& config, StopSignals& signals)
    : config_(config),
      signals_(signals),
      file_(open_tokens(config)),
      split_(data::split_tokens(file_->num_tokens(), config.data.validation_fraction)),
      training_(std::make_shared<data::TokenDataset>(file_, config.train.seq_len, split_.train)),
      validation_(split_.validation.size() == 0
                      ? nullptr
                      : std::make_shared<data::TokenDataset>(file_, config.train.seq_len,
                                                             split_.validation)),
      loader_(training_, {.seed = static_cast<std::uint64_t>(config.run.seed),
                          .global_batch = config.train.global_batch,
                          .micro_batch = config.train.micro_batch}),
      model_(build_model(config)),
      parameters_(*model_, {.device = Device::cpu(),
                            .compute_dtype = compute_dtype(config.train),
                            .seed = static_cast<std::uint64_t>(config.run.seed)}),
      optimizer_(build_optimizer(config.optimizer, parameters_.chunks())),
      schedule_(build_schedule(config)),
      step_(*model_, parameters_, *optimizer_, Device::cpu(),
            {.grad_clip = config.train.grad_clip}),
      non_finite_(config.train),
      folder_(RunFolder::create(config)),
      metrics_(folder_.metrics()) {
  current_context().random.seed = static_cast<std::uint64_t>(config.run.seed);
}

void Trainer::print_line(const std::string& line) {
  if (!prints_) {
    return;
  }
  try {
    print_now(line + "\n");
  } catch (const IoError& error) {
    prints_ = false;
    log_warning("{}: the run goes on: see {}", error.what(), folder_.metrics().string());
  }
}

int Trainer::run() {
  print_line(
      fmt::format("{}: {:.2f} M parameters, {} training and {} validation tokens, isa {}, "
                  "{} threads",
                  config_.model.name, static_cast<double>(parameters_.num_parameters()) * 1e-6,
                  split_.train.size(), split_.validation.size(), name_of(current_context().isa()),
                  current_context().pool().threads()));
  start_ = Clock::now();
  interval_ = {};
  for (std::int64_t step = 0; step < config_.train.steps; ++step) {
    train_one(step);
    int signal = signals_.pending();
    const bool last = step + 1 == config_.train.steps;
    const bool due = config_.eval.every > 0 && (step + 1) % config_.eval.every == 0;
    if (signal == 0 && (last || due)) {
      validate(step);
      signal = signals_.pending();
    }
    if (signal != 0) {
      finish();
      log_warning("stopped by signal {} after step {} of {}: weights and metrics are written",
                  signal, step + 1, config_.train.steps);
      return static_cast<int>(ExitCode::Signalled) + signal;
    }
  }
  finish();
  check<IoError>(prints_,
                 "standard output could not be written during the run: metrics and {} are complete",
                 folder_.weights().string());
  return static_cast<int>(ExitCode::Done);
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
    log_warning("step {} of {} has no target: each of its tokens ends a document: no update",
                step + 1, config_.train.steps);
    return;
  }
  const double loss = result.loss.item();
  const double grad_norm = result.grad_norm.item();
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    non_finite_.react({step_, parameters_, micro_batches, number, loss, grad_norm}, metrics_,
                      [this] { write_weights(); });
    return;
  }
  non_finite_.passed();
  step_.update(lr);
  if ((step + 1) % config_.log.every == 0 || step == 0 || step + 1 == config_.train.steps) {
    report(step, loss, grad_norm, lr);
  }
}

void Trainer::report(std::int64_t step, double loss, double grad_norm, double lr) {
  const double seconds = seconds_since(interval_.start);
  const double tokens =
      static_cast<double>(interval_.steps * config_.train.global_batch * config_.train.seq_len);
  const double elapsed = seconds_since(start_);
  const double left =
      elapsed / static_cast<double>(step + 1) * static_cast<double>(config_.train.steps - step - 1);
  print_line(fmt::format(
      "step {:>6}/{}  loss {:.4f}  lr {:.2e}  grad norm {:.3f}  {:.0f} tok/s  "
      "left {}",
      step + 1, config_.train.steps, loss, lr, grad_norm, tokens / seconds, as_duration(left)));
  metrics_.write(nlohmann::ordered_json{
      {"step", step + 1},
      {"loss", loss},
      {"lr", lr},
      {"grad_norm", grad_norm},
      {"tokens_per_second", tokens / seconds},
      {"seconds",
       elapsed}}.dump());
  interval_ = {};
}

void Trainer::validate(std::int64_t step) {
  if (!validation_) {
    return;
  }
  const std::uint64_t all = validation_->num_samples();
  const auto batch = static_cast<std::uint64_t>(config_.train.micro_batch);
  const auto batches = static_cast<std::uint64_t>(config_.eval.batches);
  const bool whole = batches == 0 || batches > all / batch;
  const std::optional<double> loss =
      evaluate(*model_, *validation_, whole ? all : batches * batch, config_.train.micro_batch);
  if (!loss) {
    log_warning("validation behind step {} of {} has no target: each of its tokens ends a document",
                step + 1, config_.train.steps);
    return;
  }
  check(std::isfinite(*loss),
        "train: the validation loss behind step {} is {}: lower optimizer.lr; no weights were "
        "written",
        step + 1, *loss);
  print_line(
      fmt::format("step {:>6}/{}  validation loss {:.4f}", step + 1, config_.train.steps, *loss));
  metrics_.write(nlohmann::ordered_json{{"step", step + 1}, {"validation_loss", *loss}}.dump());
  interval_ = {};
}

void Trainer::write_weights() {
  save_weights(folder_.weights(), parameters_,
               {.config = config_, .tokenizer = file_->header().tokenizer});
}

void Trainer::finish() {
  write_weights();
  const MemoryCounters& memory = current_context().allocator(Device::cpu()).counters();
  print_line(fmt::format("done in {}: weights in {}, peak memory {:.1f} MiB",
                         as_duration(seconds_since(start_)), folder_.weights().string(),
                         static_cast<double>(memory.peak_total) / (1024.0 * 1024.0)));
}

}  // namespace

int train(const Config& config) {
  // First of all: building a large model to be refused then would take minutes.
  RunFolder::refuse_existing(config);
  // Before the threads of the context, so that they hold the signals back too.
  StopSignals signals;
  RankContext context({.threads = static_cast<int>(config.run.threads)});
  const ContextGuard guard(context);
  return Trainer(config, signals).run();
}

}  // namespace fsdptrain::tools
