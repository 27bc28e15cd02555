#include "tools/run/run_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fmt/format.h>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/folder/names.h"
#include "runtime/base/error.h"

namespace fsdptrain::tools {
namespace {

constexpr double kSecondsPerMinute = 60;

// What a rank says while a checkpoint is under way: "<signal> <due> <the saver's report>".
struct Message {
  int signal = 0;
  int due = 0;
  std::string report;
};

Message parse_message(const std::string& text) {
  Message message;
  const char* const end = text.data() + text.size();
  const char* at = std::from_chars(text.data(), end, message.signal).ptr;
  at = std::from_chars(std::min(at + 1, end), end, message.due).ptr;
  message.report = std::string(std::min(at + 1, end), end);
  return message;
}

}  // namespace

bool copies_to_save(const CheckpointConfig& config) {
  return config.async && (config.every > 0 || config.every_minutes > 0);
}

RunCheckpoints::RunCheckpoints(checkpoint::FileSystem& files, comm::World& world,
                               const checkpoint::TrainingState& state, Options options,
                               Reporter& reporter)
    : world_(world),
      options_(std::move(options)),
      reporter_(reporter),
      saved_step_(options_.resumed_from) {
  if (!options_.folder) {
    return;
  }
  const CheckpointConfig& config = options_.config;
  saver_ = std::make_unique<checkpoint::Saver>(
      files, world, state,
      checkpoint::Saver::Options{
          .folder = *options_.folder,
          .async = copies_to_save(config),
          .keep_last = config.keep,
          .keep_steps =
              options_.resumed_from ? std::set{*options_.resumed_from} : std::set<std::int64_t>(),
          .deadline = std::chrono::seconds(config.timeout),
          .before_commit = options_.check_lock,
          .warn = [&reporter](const std::string& text) { reporter.warning(text); }});
}

bool RunCheckpoints::is_due(std::int64_t steps_done) const {
  const CheckpointConfig& config = options_.config;
  const bool by_steps = config.every > 0 && steps_done % config.every == 0;
  // The clock is that of rank 0.
  const bool by_time = config.every_minutes > 0 && world_.rank() == 0 &&
                       since_.seconds() >= config.every_minutes * kSecondsPerMinute;
  return by_steps || by_time;
}

template <class Action>
void RunCheckpoints::attempt(const Action& action, bool must_succeed) {
  try {
    action();
  } catch (const IoError& error) {
    check_lock();
    ++failed_in_a_row_;
    const CheckpointConfig& config = options_.config;
    if (must_succeed || config.on_error == "stop" || failed_in_a_row_ >= config.error_limit) {
      throw;
    }
    reporter_.warning(fmt::format("a checkpoint failed, {} of at most {} in a row: {}",
                                  failed_in_a_row_, config.error_limit, error.what()));
  }
}

void RunCheckpoints::check_lock() const {
  try {
    if (options_.check_lock) {
      options_.check_lock();
    }
  } catch (const IoError& lost) {
    fail("{}", lost.what());
  }
}

void RunCheckpoints::note(std::int64_t step) {
  failed_in_a_row_ = 0;
  saved_step_ = step;
  reporter_.checkpoint(step, (*options_.folder / checkpoint::step_folder_name(step)).string());
}

void RunCheckpoints::finish() {
  attempt([this] {
    if (const auto saved = saver_->finish()) {
      note(saved->step);
    }
  });
}

RunCheckpoints::Boundary RunCheckpoints::meet(int signal, std::int64_t steps_done) {
  const int due = saver_ && is_due(steps_done) ? 1 : 0;
  if (!saver_ || !saver_->in_flight()) {
    const Tensor both = Tensor::zeros({2}, DType::Int64);
    both.mutable_values<std::int64_t>()[0] = signal;
    both.mutable_values<std::int64_t>()[1] = due;
    world_.control().issue(comm::all_reduce(both, {.op = comm::ReduceOp::Max})).wait();
    return {static_cast<int>(both.values<std::int64_t>()[0]), both.values<std::int64_t>()[1] != 0};
  }
  Boundary boundary;
  std::vector<std::string> reports;
  for (const std::string& text :
       world_.exchange(fmt::format("{} {} {}", signal, due, saver_->report()))) {
    Message message = parse_message(text);
    boundary.signal = std::max(boundary.signal, message.signal);
    boundary.is_due = boundary.is_due || message.due != 0;
    reports.push_back(std::move(message.report));
  }
  attempt([&] {
    if (const auto saved = saver_->take(reports)) {
      note(saved->step);
    }
  });
  return boundary;
}

void RunCheckpoints::save(std::int64_t steps_done) {
  // The failure of the one before is not that of this one.
  finish();
  since_ = {};
  attempt([&] {
    if (options_.config.async) {
      saver_->save(steps_done);
    } else {
      saver_->save_and_wait(steps_done);
      note(steps_done);
    }
  });
}

bool RunCheckpoints::save_last(std::int64_t steps_done, bool has_come_to_its_end) {
  if (!saver_) {
    return false;
  }
  finish();
  if (saved_step_ != steps_done) {
    attempt(
        [&] {
          saver_->save_and_wait(steps_done);
          note(steps_done);
        },
        has_come_to_its_end);
  }
  return saved_step_ == steps_done;
}

}  // namespace fsdptrain::tools
