#include "comm/gloo/intake.h"

#include <utility>

#include "comm/signals.h"

namespace fsdptrain::comm {

Intake::~Intake() {
  stop();
}

void Intake::expect(Region& region, std::function<void()> arrived) {
  {
    const std::lock_guard lock(mutex_);
    expected_.push_back({&region, std::move(arrived)});
  }
  changed_.notify_one();
  if (!thread_.joinable()) {
    thread_ = thread_without_signals([this] { run(); });
  }
}

void Intake::stop() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    if (!expected_.empty()) {
      expected_.front().region->stop_waiting();
    }
  }
  changed_.notify_one();
  thread_.join();
}

void Intake::run() {
  while (true) {
    Region* region = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_stopping_ || !expected_.empty(); });
      if (is_stopping_) {
        return;
      }
      region = expected_.front().region;
    }
    if (!region->wait_received()) {
      return;
    }
    std::function<void()> arrived;
    {
      const std::lock_guard lock(mutex_);
      arrived = std::move(expected_.front().arrived);
      expected_.pop_front();
    }
    arrived();
  }
}

}  // namespace fsdptrain::comm
