#include "tools/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "comm/error.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/processors.h"
#include "runtime/base/rank_context.h"
#include "runtime/data/fingerprint.h"
#include "tools/generate/keep_gathered.h"
#include "tools/machine/fma_roof.h"
#include "tools/plan/comparison.h"
#include "tools/plan/memory_plan.h"
#include "tools/train/evaluation.h"
#include "tools/train/flops.h"
#include "tools/train/from_config.h"
#include "tools/train/non_finite.h"
#include "tools/train/samples.h"
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

Trainer::Trainer(const Setting& setting, comm::World& world)
    : config_(setting.config),
      signals_(setting.signals),
      debug_break_(setting.debug_break),
      world_(world),
      account_(setting.account),
      datasets_(open_datasets(config_)),
      data_files_(describe(datasets_)),
      loader_(make_loader(config_, datasets_)),
      model_(build_model(config_)),
      mesh_(config_.mesh, world.group(),
            [&world](std::vector<int> ranks, std::string name) {
              return world.new_group(std::move(ranks), std::move(name));
            }),
      sharded_(shard_model(config_, *model_, mesh_.shard(), mesh_.replicas())),
      optimizer_(build_optimizer(config_.optimizer, sharded_->chunks())),
      schedule_(build_schedule(config_)),
      step_(*model_, *sharded_, *optimizer_, step_options(config_)),
      data_parallel_(step_, *sharded_, world),
      non_finite_(config_.train),
      flops_per_token_(flops_per_token(config_)),
      measured_rate_(account_ == nullptr || world.device() != Device::cpu()
                         ? std::nullopt
                         : std::optional(measure_rate(world.size(), setting.is_bound))),
      waits_(world) {
  check_input();
  // No rank refuses the input.
  world_.control().issue(comm::barrier()).wait();
  if (account_ != nullptr) {
    open_account(setting.existing);
  }
  current_context().random.seed = static_cast<std::uint64_t>(config_.run.seed);
}

void Trainer::check_input() {
  check_prompts(config_.eval, datasets_.vocabulary().tokenizer);
  if (!config_.model.init_from.empty()) {
    load_weights(config_.model.init_from, *sharded_);
  }
  // The tokens that the run begins with: files that are damaged throughout show it here.
  if (config_.train.steps > 0) {
    loader_.micro_batch(0, 0);
  }
  for (const auto& dataset : datasets_.validation) {
    data::sequential_batch(*dataset, 0, 1);
  }
  if (config_.train.ema_decay > 0) {
    average_.emplace(sharded_->chunks(), config_.train.ema_decay);
  }
}

void Trainer::open_account(RunFolder::Existing existing) {
  account_->folder.emplace(RunFolder::create(config_, existing));
  account_->record.emplace(account_->folder->record(),
                           RunFacts{.num_ranks = world_.size(),
                                    .data = data_files_,
                                    .num_parameters = sharded_->num_parameters(),
                                    .flops_per_token = flops_per_token_,
                                    .measured_rate = measured_rate_});
  reporter_.open(*account_->folder, {.attempt = account_->record->attempt(),
                                     .steps = config_.train.steps,
                                     .samples = !config_.eval.prompts.empty()});
  account_->folder->write_config(config_);
}

void Trainer::begin_interval() {
  interval_ = {};
  waits_.restart();
}

int Trainer::run() {
  try {
    return train_all();
  } catch (const std::exception&) {
    // Others may be anywhere by now, and nobody has their parts.
    if (world_.size() == 1) {
      rescue_weights();
    }
    throw;
  }
}

void Trainer::rescue_weights() {
  if (steps_done_ == 0 || weights_tried_ || !non_finite_parameter(*sharded_).empty()) {
    return;
  }
  try {
    write_weights();
    if (account_ != nullptr) {
      reporter_.warning(fmt::format("the run fails after step {}: its weights are in {}",
                                    steps_done_, account_->folder->weights().string()));
    }
  } catch (const IoError& unwritten) {
    // The failure itself says more than that they could not be written.
    reporter_.warning(unwritten.what());
  }
}

int Trainer::agreed_signal() {
  const Tensor signal = Tensor::full({1}, signals_.pending(), DType::Int64);
  world_.control().issue(comm::all_reduce(signal, {.op = comm::ReduceOp::Max})).wait();
  return static_cast<int>(signal.item());
}

std::int64_t Trainer::sum(std::int64_t value) {
  const Tensor sum = Tensor::zeros({1}, DType::Int64);
  sum.mutable_values<std::int64_t>()[0] = value;
  world_.control().issue(comm::all_reduce(sum)).wait();
  return sum.values<std::int64_t>()[0];
}

int Trainer::train_all() {
  reporter_.line(fmt::format(
      "{}: {:.2f} M parameters, {} training and {} validation tokens, {}, isa {}, "
      "{} ranks x {} threads",
      config_.model.name, static_cast<double>(sharded_->num_parameters()) * 1e-6,
      datasets_.num_training_tokens(), datasets_.num_validation_tokens(), world_.device(),
      name_of(current_context().isa()), world_.size(), current_context().pool().threads()));
  if (measured_rate_) {
    reporter_.line(fmt::format(
        "rate measured at start: {:.1f} GFLOP/s of float32 multiply-add; a token counts "
        "{:.4g} MFLOP: {}",
        *measured_rate_ * 1e-9, flops_per_token_ * 1e-6, kFlopsConvention));
  }
  stopwatch_ = {};
  begin_interval();
  if (account_ != nullptr) {
    account_->stopwatch = stopwatch_;
  }
  int signal = agreed_signal();
  while (steps_done_ < config_.train.steps && signal == 0) {
    const std::int64_t step = steps_done_;
    debug_break_.at(step + 1, [this] { return signals_.pending() != 0; });
    train_one(step);
    ++steps_done_;
    if (account_ != nullptr) {
      account_->steps_done = steps_done_;
    }
    reporter_.progress(steps_done_);
    signal = agreed_signal();
    const bool last = steps_done_ == config_.train.steps;
    const bool due = config_.eval.every > 0 && steps_done_ % config_.eval.every == 0;
    if (signal == 0 && (last || due)) {
      validate(step);
      signal = agreed_signal();
    }
  }
  // One that arrives from here on comes too late: the run is done.
  finish(signal);
  return signal;
}

std::vector<data::Batch> Trainer::read_step(std::uint64_t step) {
  std::vector<data::Batch> micro_batches;
  std::exception_ptr failure;
  try {
    micro_batches = micro_batches_of_rank(loader_, step, {world_.rank(), world_.size()});
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  if (sum(failure ? 1 : 0) > 0) {
    // All ranks are here, and can put the weights together. A rank that fails ends the others
    // wherever they are: not before all is written.
    rescue_weights();
    world_.control().issue(comm::barrier()).wait();
    if (failure) {
      std::rethrow_exception(failure);
    }
    // Until the failure comes.
    world_.control().issue(comm::barrier()).wait();
  }
  return micro_batches;
}

void Trainer::train_one(std::int64_t step) {
  const auto number = static_cast<std::uint64_t>(step);
  const std::vector<data::Batch> micro_batches = read_step(number);
  const TrainStep::Share share = data_parallel_.share_of(micro_batches);
  const double lr = schedule_.at(step);
  const TrainStep::Result result = data_parallel_.forward_backward(share, number);
  ++interval_.steps;
  if (!result.loss.defined()) {
    reporter_.warning(
        fmt::format("step {} of {} has no target: each of its tokens ends a document: no update",
                    step + 1, config_.train.steps));
    return;
  }
  // The same bits on all ranks, and so is what follows from them.
  const double loss = result.loss.item();
  const double grad_norm = result.grad_norm.item();
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    non_finite_.react({step_, *sharded_, share, world_, number, loss, grad_norm}, reporter_,
                      [this] { write_weights(); });
    return;
  }
  non_finite_.passed();
  step_.update(lr);
  if (average_) {
    average_->update(sharded_->chunks());
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
  const MemoryCounters& memory = current_context().allocator(world_.device()).counters();
  const std::int64_t memory_live = sum(memory.live_total);
  const std::int64_t memory_peak = sum(memory.peak_total);
  reporter_.step({.step = step + 1,
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
                  .seconds_left = elapsed / static_cast<double>(step + 1) *
                                  static_cast<double>(config_.train.steps - step - 1),
                  .waits = waits_.summary()});
  begin_interval();
}

void Trainer::validate(std::int64_t step) {
  validation_loss(step);
  write_samples(step);
  begin_interval();
}

void Trainer::validation_loss(std::int64_t step) {
  if (datasets_.validation.empty()) {
    return;
  }
  const LossTotals totals = evaluate(
      *model_, datasets_.validation,
      {.batch = config_.train.micro_batch, .max_batches = config_.eval.batches}, world_.control());
  if (totals.num_targets == 0) {
    reporter_.warning(fmt::format(
        "validation behind step {} of {} has no target: each of its tokens ends a document",
        step + 1, config_.train.steps));
    return;
  }
  if (!std::isfinite(totals.mean())) {
    // The same on all ranks; none of them fails before all is written.
    rescue_weights();
    world_.control().issue(comm::barrier()).wait();
    fail("train: the validation loss behind step {} is {}: lower optimizer.lr", step + 1,
         totals.mean());
  }
  reporter_.validation(step + 1, totals.mean());
}

void Trainer::write_samples(std::int64_t step) {
  const auto seed = static_cast<std::uint64_t>(config_.run.seed);
  const auto stops = [this] { return agreed_signal() != 0; };
  if (config_.eval.prompts.empty()) {
    return;
  }
  const auto gathered = keep_gathered(*sharded_, world_);
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
  using Path = std::optional<std::filesystem::path>;
  const RunFolder* const folder = account_ == nullptr ? nullptr : &*account_->folder;
  // All ranks come to the end of both, whatever becomes of the files.
  std::exception_ptr failure;
  const auto save = [&](const Path& path, const optim::WeightAverage* average) {
    try {
      save_weights(path, *sharded_, info, average);
    } catch (const std::exception&) {
      failure = failure ? failure : std::current_exception();
    }
  };
  save(folder == nullptr ? Path() : folder->weights(), nullptr);
  if (average_) {
    save(folder == nullptr ? Path() : folder->average_weights(), &*average_);
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

void Trainer::report_plan(const MemoryCounters& measured) {
  // Steps are alike from the second on; of GPUs less is planned.
  if (world_.device() != Device::cpu() || steps_done_ < 2) {
    return;
  }
  try {
    const int threads = current_context().pool().threads();
    reporter_.line(planned_and_measured(plan_memory(config_, world_.size(), world_.rank(), threads),
                                        measured));
  } catch (const Error& error) {
    // The run is done.
    reporter_.warning(error.what());
  }
}

void Trainer::finish(int signal) {
  write_weights();
  const MemoryCounters memory = current_context().allocator(world_.device()).counters();
  const std::int64_t memory_peak = sum(memory.peak_total);
  if (account_ == nullptr) {
    return;
  }
  const std::string weights = account_->folder->weights().string();
  reporter_.line(fmt::format("done in {}: weights in {}, peak memory {:.1f} MiB",
                             as_duration(stopwatch_.seconds()), weights,
                             static_cast<double>(memory_peak) / (1024.0 * 1024.0)));
  report_plan(memory);
  if (signal != 0) {
    reporter_.warning(
        fmt::format("stopped by signal {} after step {} of {}: weights and metrics are written",
                    signal, steps_done_, config_.train.steps));
  } else {
    reporter_.check_complete(weights);
  }
}

}  // namespace fsdptrain::tools
