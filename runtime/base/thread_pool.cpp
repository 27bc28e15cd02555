#include "runtime/base/thread_pool.h"

#include <exception>

#include "runtime/base/error.h"
#include "runtime/base/spin.h"

namespace fsdptrain {
namespace {

// About 50 µs before a worker sleeps.
constexpr int kSpins = 2000;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  check<ConfigError>(threads >= 1 && threads <= 4096, "threads: must be 1 to 4096, got {}",
                     threads);
  const unsigned processors = std::thread::hardware_concurrency();
  spins_ = static_cast<unsigned>(threads) <= processors ? kSpins : 0;
  workers_.reserve(static_cast<std::size_t>(threads) - 1);
  try {
    for (int worker = 1; worker < threads; ++worker) {
      workers_.emplace_back([this, worker] { work(worker); });
    }
  } catch (const std::exception& error) {
    stop();
    fail(
        "threads: wanted {}, but only {} could be started ({}): raise the limit of `ulimit -u` or "
        "set fewer run.threads",
        threads, this->threads(), error.what());
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::run(std::int64_t count, Task task, void* context) {
  if (count <= 1 || workers_.empty()) {
    for (std::int64_t index = 0; index < count; ++index) {
      task(context, index, 0);
    }
    return;
  }
  task_ = task;
  context_ = context;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();

  claim_tasks(0);
  for (int spin = 0;; ++spin) {
    const int busy = busy_.load(std::memory_order_acquire);
    if (busy == 0) {
      return;
    }
    if (spin < spins_) {
      spin_pause();
    } else {
      busy_.wait(busy, std::memory_order_acquire);
    }
  }
}

void ThreadPool::claim_tasks(int thread) {
  for (std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed); index < count_;
       index = next_.fetch_add(1, std::memory_order_relaxed)) {
    task_(context_, index, thread);
  }
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  while (true) {
    for (int spin = 0; generation_.load(std::memory_order_acquire) == seen; ++spin) {
      if (spin < spins_) {
        spin_pause();
      } else {
        generation_.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) {
      return;
    }
    claim_tasks(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      busy_.notify_one();
    }
  }
}

}  // namespace fsdptrain
