#include "tools/train/trainer.h"

#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "comm/error.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "tools/train/from_config.h"
#include "tools/train/non_finite.h"
#include "tools/train/samples.h"
#include "tools/train/weights.h"

namespace fsdptrain::tools {

Trainer::Trainer(const Setting& setting, comm::World& world)
    : config_(setting.config),
      signals_(setting.signals),
      debug_break_(setting.debug_break),
      world_(world),
      account_(setting.account),
      files_(checkpoint::make_real_file_system()),
      datasets_(open_datasets(config_)),
      data_files_(datasets_.files()),
      loader_(make_loader(config_, datasets_)),
      mesh_(config_.mesh, world.group(),
            [&world](std::vector<int> ranks, std::string name) {
              return world.new_group(std::move(ranks), std::move(name));
            }),
      rank_(config_, mesh_.shard(), mesh_.replicas()),
      schedule_(build_schedule(config_)),
      data_parallel_(rank_.step(), rank_.sharded(), world),
      non_finite_(config_.train),
      report_(config_, world,
              {.tells = account_ != nullptr,
               .is_bound = setting.is_bound,
               .compare_memory = setting.compare_memory}),
      validation_(rank_, datasets_, world, report_.reporter()),
      saved_progress_(progress_),
      saved_config_(config_, setting.start.numerics),
      saved_vocabulary_(datasets_.vocabulary()) {
  check_data(setting.start, data_files_);
  check_input();
  load(setting.start);
  // No rank refuses the input.
  meet();
  if (account_ != nullptr) {
    open_account();
  }
  checkpoints_.emplace(
      *files_, world, state(),
      RunCheckpoints::Options{.config = config_.checkpoint,
                              .folder = setting.start.checkpoints,
                              .resumed_from = loaded_ ? std::optional(loaded_->step) : std::nullopt,
                              .check_lock = account_ == nullptr
                                                ? std::function<void()>()
                                                : [this] { account_->folder->check_held(); }},
      report_.reporter());
}

void Trainer::check_input() {
  check_prompts(config_.eval, datasets_.vocabulary().tokenizer);
  // The tokens that the run begins with: files that are damaged throughout show it here.
  if (config_.train.steps > 0) {
    loader_.micro_batch(0, 0);
  }
  for (const auto& dataset : datasets_.validation) {
    data::sequential_batch(*dataset, 0, 1);
  }
}

checkpoint::TrainingState Trainer::state() {
  return {.model = &rank_.sharded(),
          .replicas = mesh_.replicas(),
          .optimizer = &rank_.optimizer(),
          .average = rank_.average(),
          .objects = {{kSavedConfig, &saved_config_},
                      {kSavedProgress, &saved_progress_},
                      {kSavedVocabulary, &saved_vocabulary_}}};
}

void Trainer::load(const RunStart& start) {
  if (start.resumes && start.checkpoints) {
    rank_.begin_average();
    loaded_ = checkpoint::load_newest(*files_, world_, state(), *start.checkpoints,
                                      {.allow_differences = start.is_changed()});
  }
  if (!loaded_) {
    load_initial();
  }
  if (!loaded_ || !saved_config_.has_average()) {
    rank_.begin_average();
  }
  if (!loaded_) {
    return;
  }
  steps_done_ = loaded_->step;
  non_finite_.resume(progress_.skipped_in_a_row);
  loader_ = make_loader(config_, datasets_, {.step = steps_done_, .samples = progress_.samples});
  if (account_ != nullptr && !start.is_changed() && steps_done_ > 0 &&
      schedule_.at(steps_done_ - 1) != progress_.lr) {
    log_warning("step {} had the learning rate {}, and this program would give it {}", steps_done_,
                progress_.lr, schedule_.at(steps_done_ - 1));
  }
}

void Trainer::load_initial() {
  const std::string& from = config_.model.init_from;
  if (from.empty()) {
    return;
  }
  if (!std::filesystem::is_directory(from)) {
    load_weights(from, rank_.sharded());
    return;
  }
  const checkpoint::Loaded loaded = checkpoint::load_checkpoint(
      *files_, world_, state(), from,
      {.parameters_only = true, .convert_dtypes = true, .allow_differences = true});
  if (account_ != nullptr) {
    for (const std::string& difference : loaded.differences) {
      log_warning("model.init_from: {}", difference);
    }
  }
  check_finite(from, rank_.sharded());
}

void Trainer::open_account() {
  RunFolder& folder = *account_->folder;
  const auto old = folder.open();
  account_->record.emplace(folder.record(), config_,
                           RunFacts{.num_ranks = world_.size(),
                                    .data = data_files_,
                                    .num_parameters = rank_.sharded().num_parameters(),
                                    .flops_per_token = report_.flops_per_token(),
                                    .measured_rate = report_.measured_rate(),
                                    .resumed_step = steps_done_,
                                    .changes = folder.changes()},
                           folder.earlier());
  account_->steps_done = steps_done_;
  report_.reporter().open(folder,
                          {.attempt = account_->record->attempt(),
                           .steps = config_.train.steps,
                           .samples = !config_.eval.prompts.empty(),
                           .resumed_step = steps_done_,
                           .checkpoint = loaded_ ? loaded_->folder.filename().string() : ""});
  folder.write_config(config_);
  report_.tell_start(old, folder.changes(), loaded_, account_->record->attempt());
}

RunOutcome Trainer::run() {
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
  if (steps_done_ == 0 || weights_tried_ || !non_finite_parameter(rank_.sharded()).empty()) {
    return;
  }
  try {
    write_weights();
    if (account_ != nullptr) {
      report_.reporter().warning(fmt::format("the run fails after step {}: its weights are in {}",
                                             steps_done_, account_->folder->weights().string()));
    }
  } catch (const IoError& unwritten) {
    // The failure itself says more than that they could not be written.
    report_.reporter().warning(unwritten.what());
  }
}

int Trainer::agreed_signal() {
  const Tensor signal = Tensor::full({1}, signals_.pending(), DType::Int64);
  world_.control().issue(comm::all_reduce(signal, {.op = comm::ReduceOp::Max})).wait();
  return static_cast<int>(signal.item());
}

bool Trainer::is_validation_due() const {
  const bool is_last = steps_done_ == config_.train.steps && steps_done_ > 0;
  const bool is_turn = config_.eval.every > 0 && steps_done_ % config_.eval.every == 0;
  return (is_last || is_turn) && progress_.validated_step != steps_done_;
}

template <class Action>
auto Trainer::or_rescue(const Action& action) {
  try {
    return action();
  } catch (const IoError&) {
    rescue_weights();
    meet();
    throw;
  }
}

RunOutcome Trainer::train_all() {
  report_.begin(datasets_, rank_.sharded().num_parameters(), steps_done_);
  if (account_ != nullptr) {
    account_->stopwatch = {};
  }
  int signal = agreed_signal();
  // An attempt that was stopped behind its last step may not have come to that.
  if (signal == 0 && steps_done_ > 0 && is_validation_due()) {
    signal = validate();
  }
  while (steps_done_ < config_.train.steps && signal == 0) {
    debug_break_.at(steps_done_ + 1, [this] { return signals_.pending() != 0; });
    train_one(steps_done_);
    ++steps_done_;
    if (account_ != nullptr) {
      account_->steps_done = steps_done_;
    }
    report_.reporter().progress(steps_done_);
    const RunCheckpoints::Boundary boundary =
        or_rescue([this] { return checkpoints_->meet(signals_.pending(), steps_done_); });
    signal = boundary.signal;
    if (signal == 0 && is_validation_due()) {
      signal = validate();
    }
    if (signal == 0 && boundary.is_due && steps_done_ < config_.train.steps) {
      or_rescue([this] { checkpoints_->save(steps_done_); });
    }
  }
  // One that arrives from here on comes too late: the run is done.
  return finish(signal);
}

std::vector<data::Batch> Trainer::read_step(std::uint64_t step) {
  std::vector<data::Batch> micro_batches;
  std::exception_ptr failure;
  try {
    micro_batches = micro_batches_of_rank(loader_, step, {world_.rank(), world_.size()});
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  const Tensor failed = Tensor::full({1}, failure ? 1 : 0, DType::Int64);
  world_.control().issue(comm::all_reduce(failed)).wait();
  if (failed.item() > 0) {
    // All ranks are here, and can put the weights together. A rank that fails ends the others
    // wherever they are: not before all is written.
    rescue_weights();
    meet();
    if (failure) {
      std::rethrow_exception(failure);
    }
    // Until the failure comes.
    meet();
  }
  return micro_batches;
}

void Trainer::train_one(std::int64_t step) {
  const auto number = static_cast<std::uint64_t>(step);
  const std::vector<data::Batch> micro_batches = read_step(number);
  const TrainStep::Share share = data_parallel_.share_of(micro_batches);
  const double lr = schedule_.at(step);
  progress_.samples += config_.train.global_batch;
  progress_.tokens += config_.train.global_batch * config_.train.seq_len;
  progress_.lr = lr;
  const TrainStep::Result result = data_parallel_.forward_backward(share, number);
  report_.count_step();
  if (!result.loss.defined()) {
    report_.reporter().warning(
        fmt::format("step {} of {} has no target: each of its tokens ends a document: no update",
                    step + 1, config_.train.steps));
    return;
  }
  // The same bits on all ranks, and so is what follows from them.
  const double loss = result.loss.item();
  const double grad_norm = result.grad_norm.item();
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    non_finite_.react({rank_.step(), rank_.sharded(), share, world_, number, loss, grad_norm},
                      report_.reporter(), [this] { write_weights(); });
    progress_.skipped_in_a_row = non_finite_.skipped_in_a_row();
    return;
  }
  non_finite_.passed();
  progress_.skipped_in_a_row = 0;
  rank_.step().update(lr);
  rank_.update_average();
  if ((step + 1) % config_.log.every == 0 || step == 0 || step + 1 == config_.train.steps) {
    report_.step(step + 1, loss, grad_norm, lr);
  }
}

int Trainer::validate() {
  const std::optional<double> loss = validation_.loss(steps_done_);
  if (loss && !std::isfinite(*loss)) {
    // The same on all ranks; none of them fails before all is written.
    rescue_weights();
    meet();
    fail("train: the validation loss behind step {} is {}: lower optimizer.lr", steps_done_, *loss);
  }
  validation_.samples(steps_done_, [this] { return agreed_signal() != 0; });
  report_.begin_interval();
  const int signal = agreed_signal();
  if (signal == 0) {
    progress_.validated_step = steps_done_;
    if (loss && (!progress_.best_loss || *loss < *progress_.best_loss)) {
      progress_.best_loss = loss;
      progress_.best_step = steps_done_;
    }
  }
  return signal;
}

void Trainer::write_weights() {
  weights_tried_ = true;
  save_run_weights(account_ == nullptr ? nullptr : &*account_->folder, rank_,
                   datasets_.vocabulary());
}

RunOutcome Trainer::finish(int signal) {
  RunOutcome outcome{.signal = signal};
  std::exception_ptr failure;
  try {
    outcome.is_saved = checkpoints_->save_last(steps_done_);
  } catch (const IoError&) {
    // The same on all ranks.
    failure = std::current_exception();
  }
  write_weights();
  if (failure) {
    meet();
    std::rethrow_exception(failure);
  }
  const std::string weights =
      account_ == nullptr ? std::string() : account_->folder->weights().string();
  report_.end(steps_done_, weights);
  if (account_ == nullptr) {
    return outcome;
  }
  if (signal != 0) {
    report_.reporter().warning(
        fmt::format("stopped by signal {} after step {} of {}: weights and metrics are written{}",
                    signal, steps_done_, config_.train.steps,
                    outcome.is_saved ? ", and a checkpoint: the same command goes on" : ""));
  } else {
    report_.reporter().check_complete(weights);
  }
  return outcome;
}

}  // namespace fsdptrain::tools
