#include "checkpoint/save/background_work.h"

#include <utility>

#include "comm/error.h"
#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {

BackgroundWork::BackgroundWork(std::function<std::string(const Check&)> work)
    : thread_([this, work = std::move(work)] { run(work); }) {}

BackgroundWork::~BackgroundWork() {
  cancel();
  thread_.join();
}

void BackgroundWork::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
}

std::optional<BackgroundWork::Outcome> BackgroundWork::outcome() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

bool BackgroundWork::wait_for(comm::Nanoseconds time) const {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, time, [this] { return outcome_.has_value(); });
}

void BackgroundWork::run(const std::function<std::string(const Check&)>& work) {
  Outcome outcome;
  try {
    outcome.text = work([this] {
      const std::lock_guard lock(mutex_);
      fsdptrain::check<IoError>(!cancelled_, "{}", "it was given up");
    });
  } catch (...) {
    outcome = {.failed = true, .text = comm::text_of(std::current_exception())};
  }
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(outcome);
  ended_.notify_all();
}

}  // namespace fsdptrain::checkpoint
