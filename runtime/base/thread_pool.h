#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace fsdptrain {

// The compute threads of one rank: the only place that makes threads for compute. Idle workers
// spin for a short while, then sleep. Results never depend on which thread runs a task: kernels
// split their work by shape alone and tasks share nothing they write.
class ThreadPool {
 public:
  // `thread` is in [0, threads()): no two tasks run with the same one at the same time, so it
  // may choose scratch memory, and nothing else.
  using Task = void (*)(void* context, std::int64_t index, int thread);

  // `threads` counts the calling thread; at least 1. Workers do not spin where there are more
  // threads than processors. Error, and no thread left behind, if the system refuses one.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(context, i, thread) for every i in [0, count), each once, and returns when all are
  // done. Called by one thread at a time and never from within a task; tasks do not throw.
  void run(std::int64_t count, Task task, void* context);

 private:
  void work(int thread);
  void stop();
  void claim_tasks(int thread);

  // Written by run() before `generation_` announces it.
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  int spins_ = 0;

  std::atomic<std::int64_t> next_{0};
  std::atomic<std::uint32_t> generation_{0};
  // Workers that have not finished the current generation.
  std::atomic<int> busy_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace fsdptrain
