#include "tools/train/trainer.h"

#include <cmath>
#include <exception>
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/train/non_finite.h"
#include "tools/train/weights.h"

namespace fsdptrain::tools {

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
  save_run_weights(account_ == nullptr ? nullptr : &*account_->folder, world_, rank_,
                   datasets_.vocabulary());
}

RunOutcome Trainer::finish(int signal) {
  RunOutcome outcome{.signal = signal};
  std::exception_ptr failure;
  std::string said;
  try {
    outcome.is_saved = checkpoints_->save_last(steps_done_, signal == 0);
  } catch (const IoError& error) {
    // The same on all ranks.
    failure = std::current_exception();
    said = error.what();
  }
  try {
    write_weights();
  } catch (const std::exception&) {
    if (failure) {
      report_.reporter().warning("the last checkpoint failed: " + said);
    }
    throw;
  }
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
