#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/fakecuda/kernels/launch_accesses.h"

namespace fsdptrain::fakecuda {

// While it exists, the instrumented accesses of this host thread (access_hooks.cpp) are those of a
// thread of a launch. Its own memory, which no other thread can reach, does not count: its stack,
// the arguments of the kernel and threadIdx and the like.
class ThreadWatch {
 public:
  // `stack` is the frame that calls the kernel.
  ThreadWatch(LaunchAccesses& accesses, const void* stack, const void* arguments,
              std::size_t nbytes);
  ThreadWatch(const ThreadWatch&) = delete;
  ThreadWatch& operator=(const ThreadWatch&) = delete;
  ~ThreadWatch();

  void begin_thread(std::uint32_t thread) { thread_ = thread; }
  // `alignment`: what CUDA wants of the address.
  void access(const void* data, std::size_t nbytes, bool is_write, std::size_t alignment);
  // The first address that was not aligned as it should be; null if there is none.
  const void* first_misaligned() const { return misaligned_; }

  // That of this host thread, or null.
  static ThreadWatch* current();

 private:
  LaunchAccesses& accesses_;
  std::uint32_t thread_ = 0;
  std::uintptr_t stack_;
  std::uintptr_t arguments_;
  std::size_t nbytes_;
  const void* misaligned_ = nullptr;
};

}  // namespace fsdptrain::fakecuda
