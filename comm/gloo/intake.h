#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/gloo/mesh.h"

namespace fsdptrain::comm {

// Waits for what one peer sends, in the order in which the receives were posted, on a thread of its
// own that the first of them starts.
class Intake {
 public:
  Intake() = default;
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;
  ~Intake();

  // A receive of that peer is posted in `region`, which stays until `arrived` was called, on the
  // thread.
  void expect(Region& region, std::function<void()> arrived);
  // Ends the thread; nothing arrives any more.
  void stop();

 private:
  struct Expected {
    Region* region = nullptr;
    std::function<void()> arrived;
  };

  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Expected> expected_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace fsdptrain::comm
