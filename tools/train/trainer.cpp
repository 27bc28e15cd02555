#include "tools/train/trainer.h"

#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "comm/error.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
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
      validation_(rank_, datasets_, world, report_.reporter()) {
  check_input();
  // No rank refuses the input.
  meet();
  if (account_ != nullptr) {
    open_account(setting.existing);
  }
}

void Trainer::check_input() {
  check_prompts(config_.eval, datasets_.vocabulary().tokenizer);
  if (!config_.model.init_from.empty()) {
    load_weights(config_.model.init_from, rank_.sharded());
  }
  // The tokens that the run begins with: files that are damaged throughout show it here.
  if (config_.train.steps > 0) {
    loader_.micro_batch(0, 0);
  }
  for (const auto& dataset : datasets_.validation) {
    data::sequential_batch(*dataset, 0, 1);
  }
  rank_.begin_average();
}

void Trainer::open_account(RunFolder::Existing existing) {
  account_->folder.emplace(RunFolder::create(config_, existing));
  account_->record.emplace(account_->folder->record(),
                           RunFacts{.num_ranks = world_.size(),
                                    .data = data_files_,
                                    .num_parameters = rank_.sharded().num_parameters(),
                                    .flops_per_token = report_.flops_per_token(),
                                    .measured_rate = report_.measured_rate()});
  report_.reporter().open(*account_->folder, {.attempt = account_->record->attempt(),
                                              .steps = config_.train.steps,
                                              .samples = !config_.eval.prompts.empty()});
  account_->folder->write_config(config_);
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

int Trainer::train_all() {
  report_.begin(datasets_, rank_.sharded().num_parameters(), steps_done_);
  if (account_ != nullptr) {
    account_->stopwatch = {};
  }
  int signal = agreed_signal();
  while (steps_done_ < config_.train.steps && signal == 0) {
    debug_break_.at(steps_done_ + 1, [this] { return signals_.pending() != 0; });
    train_one(steps_done_);
    ++steps_done_;
    if (account_ != nullptr) {
      account_->steps_done = steps_done_;
    }
    report_.reporter().progress(steps_done_);
    signal = agreed_signal();
    const bool last = steps_done_ == config_.train.steps;
    const bool due = config_.eval.every > 0 && steps_done_ % config_.eval.every == 0;
    if (signal == 0 && (last || due)) {
      validate();
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
    return;
  }
  non_finite_.passed();
  rank_.step().update(lr);
  rank_.update_average();
  if ((step + 1) % config_.log.every == 0 || step == 0 || step + 1 == config_.train.steps) {
    report_.step(step + 1, loss, grad_norm, lr);
  }
}

void Trainer::validate() {
  const std::optional<double> loss = validation_.loss(steps_done_);
  if (loss && !std::isfinite(*loss)) {
    // The same on all ranks; none of them fails before all is written.
    rescue_weights();
    meet();
    fail("train: the validation loss behind step {} is {}: lower optimizer.lr", steps_done_, *loss);
  }
  validation_.samples(steps_done_, [this] { return agreed_signal() != 0; });
  report_.begin_interval();
}

void Trainer::write_weights() {
  weights_tried_ = true;
  save_run_weights(account_ == nullptr ? nullptr : &*account_->folder, rank_,
                   datasets_.vocabulary());
}

void Trainer::finish(int signal) {
  write_weights();
  const std::string weights =
      account_ == nullptr ? std::string() : account_->folder->weights().string();
  report_.end(steps_done_, weights);
  if (account_ == nullptr) {
    return;
  }
  if (signal != 0) {
    report_.reporter().warning(
        fmt::format("stopped by signal {} after step {} of {}: weights and metrics are written",
                    signal, steps_done_, config_.train.steps));
  } else {
    report_.reporter().check_complete(weights);
  }
}

}  // namespace fsdptrain::tools
