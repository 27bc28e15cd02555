#include <algorithm>
#include <chrono>

#include "tests/fakecuda/call.h"
#include "tests/fakecuda/thread_sanitizer.h"

// Streams as threads: what the system and the thread sanitizer make of a program.
namespace fsdptrain::fakecuda {
namespace {

// Nothing happened for so long: nothing will.
constexpr std::chrono::seconds kHangTime(60);

}  // namespace

void Machine::add_worker(Stream& stream) {
  if (has_workers()) {
    workers.emplace_back([this, &stream] { work(stream); });
  }
}

void Machine::work(Stream& stream) {
  const Quiet quiet(true);
  std::unique_lock lock(mutex);
  this_thread(*this).worker_lock = &lock;
  this_thread(*this).worker_stream = &stream;
  while (true) {
    progressed.wait(lock, [&] { return workers_stop || can_step(stream); });
    if (!can_step(stream)) {
      return;
    }
    step(stream);
    loudly_release(&stream);
    progressed.notify_all();
  }
}

void Machine::loudly_release(const void* token) const {
  if (has_workers()) {
    const Loud loud(true);
    release(token);
  }
}

void Machine::loudly_acquire(const void* token) const {
  if (has_workers()) {
    const Loud loud(true);
    acquire(token);
  }
}

void Machine::loudly_touch(const std::vector<Range>& ranges, bool is_write) const {
  if (has_workers()) {
    const Loud loud(true);
    for (const Range& range : ranges) {
      touch(range, is_write);
    }
  }
}

void Machine::run_unlocked(const std::function<void()>& body) {
  ThreadState& thread = this_thread(*this);
  const auto set_busy = [&](bool is_busy) {
    thread.is_in_op = is_busy;
    thread.worker_stream->is_busy = is_busy;
  };
  set_busy(true);
  thread.worker_lock->unlock();
  try {
    const Loud loud(true);
    body();
  } catch (...) {
    thread.worker_lock->lock();
    set_busy(false);
    throw;
  }
  thread.worker_lock->lock();
  set_busy(false);
}

bool Machine::wait_for_progress(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t before = progress;
  return progressed.wait_until(lock, std::chrono::system_clock::now() + kHangTime) ==
             std::cv_status::no_timeout ||
         progress != before;
}

void Machine::stop_workers() {
  const Quiet quiet(has_workers());
  {
    std::unique_lock lock(mutex);
    const auto is_idle = [&] {
      return std::ranges::all_of(streams,
                                 [](const Stream& stream) { return stream.queue.empty(); });
    };
    while (has_workers() && !hung && !is_idle() && wait_for_progress(lock)) {
    }
    workers_stop = true;
    progressed.notify_all();
  }
  workers.clear();
}

}  // namespace fsdptrain::fakecuda
