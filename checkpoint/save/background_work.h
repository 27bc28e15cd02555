#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/clock.h"

namespace fsdptrain::checkpoint {

// One piece of work on a thread of its own, without a rank context. Used by one thread, which
// passes it on at most.
class BackgroundWork {
 public:
  // What the work came to: its text, or that of its error.
  struct Outcome {
    bool failed = false;
    std::string text;
  };
  // Given to the work: throws an IoError once it is not wanted any more.
  using Check = std::function<void()>;

  explicit BackgroundWork(std::function<std::string(const Check&)> work);
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;
  // Cancels and waits for it.
  ~BackgroundWork();

  void cancel();
  // None while it goes on.
  std::optional<Outcome> outcome() const;
  // Whether it ended within that time.
  bool wait_for(comm::Nanoseconds time) const;

 private:
  void run(const std::function<std::string(const Check&)>& work);

  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  bool cancelled_ = false;
  std::optional<Outcome> outcome_;
  std::thread thread_;
};

}  // namespace fsdptrain::checkpoint
