#include "tests/fakecuda/kernels/thread_watch.h"

#include "kernels/cuda/simt.h"

namespace fsdptrain::fakecuda {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): hooks get no context.
constinit thread_local ThreadWatch* watch = nullptr;

bool is_index(std::uintptr_t address) {
  const auto within = [address](const kernels::cuda::Index3& index) {
    return address - reinterpret_cast<std::uintptr_t>(&index) < sizeof(index);
  };
  return within(kernels::cuda::threadIdx) || within(kernels::cuda::blockIdx) ||
         within(kernels::cuda::blockDim);
}

}  // namespace

ThreadWatch::ThreadWatch(LaunchAccesses& accesses, const void* stack, const void* arguments,
                         std::size_t nbytes)
    : accesses_(accesses),
      stack_(reinterpret_cast<std::uintptr_t>(stack)),
      arguments_(reinterpret_cast<std::uintptr_t>(arguments)),
      nbytes_(nbytes) {
  watch = this;
}

ThreadWatch::~ThreadWatch() {
  watch = nullptr;
}

ThreadWatch* ThreadWatch::current() {
  return watch;
}

void ThreadWatch::access(const void* data, std::size_t nbytes, bool is_write,
                         std::size_t alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const bool is_local = address >= here && address < stack_;
  if (is_local || address - arguments_ < nbytes_ || is_index(address)) {
    return;
  }
  if (misaligned_ == nullptr && address % alignment != 0) {
    misaligned_ = data;
  }
  accesses_.access(data, nbytes, is_write, thread_);
}

}  // namespace fsdptrain::fakecuda
