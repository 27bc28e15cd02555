#pragma once

// The only CUDA header that kernel files include. Compiled by nvcc it is CUDA. Compiled as C++,
// kernels are functions of the host and a launch hands them to run_grid(), of which every program
// is linked with one definition: it raises DeviceError in a program without CUDA, and runs one
// thread after the other in tests.
//
// As C++ every thread runs to its end before another begins; by nvcc they run in any order and side
// by side. So kernels have no barriers, no shared memory and no warp intrinsics (`__syncthreads`
// and its like are not offered yet), and no thread reads what another one writes.
#include <cstdint>
#if defined(__CUDACC__)
#include <cuda_runtime.h>

#include "kernels/cuda/launch_error.h"
#else
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#endif

namespace fsdptrain::kernels::cuda {

// Of all parameters of a kernel, what every supported device takes.
inline constexpr unsigned kMaxParameterBytes = 4096;

#if defined(__CUDACC__)

// The number of this thread in a grid of one dimension.
__device__ __forceinline__ std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Runs kernel(args...) on ceil(threads / block) blocks of `block` threads; nothing for no threads.
template <class... Parameters, class... Args>
void launch(const char* name, void (*kernel)(Parameters...), long long threads, int block,
            void* stream, const Args&... args) {
  static_assert((sizeof(Parameters) + ... + 0) <= kMaxParameterBytes);
  if (threads == 0) {
    return;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((threads + block - 1) / block));
  config.blockDim = dim3(static_cast<unsigned>(block));
  config.stream = static_cast<cudaStream_t>(stream);
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...);
  if (status != cudaSuccess) {
    // Else the next call that asks would be told of it again.
    static_cast<void>(cudaGetLastError());
    fail_launch(name, cudaGetErrorString(status));
  }
}

#else

#define __global__
#define __grid_constant__

struct Index3 {
  unsigned x, y, z;
};
// Of the CUDA thread that the calling thread runs; run_grid() sets them.
extern constinit thread_local Index3 threadIdx;  // NOLINT(*): CUDA's own variables
extern constinit thread_local Index3 blockIdx;   // NOLINT(*): as above
extern constinit thread_local Index3 blockDim;   // NOLINT(*): as above

[[gnu::always_inline]] inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

struct Grid {
  const char* name;  // of the kernel; has static storage
  long long blocks;
  int block;  // threads of each
  void* stream;
};

// A kernel and its arguments, which live as long as the call of run_grid(): what runs later keeps
// a copy. Plain functions and no owner of memory, because all of this is instrumented in tests.
struct BoundKernel {
  const void* arguments;
  std::size_t nbytes;  // of the arguments, which need no destruction
  // Makes a copy of arguments in memory that is aligned to kParameterAlignment.
  void (*copy)(void* to, const void* arguments);
  // One thread.
  void (*run)(const void* arguments);
};
inline constexpr std::size_t kParameterAlignment = 16;

void run_grid(const Grid& grid, const BoundKernel& kernel);

template <class... Parameters>
struct KernelArguments {
  void (*kernel)(Parameters...);
  std::tuple<Parameters...> values;

  static void copy(void* to, const void* arguments) {
    std::construct_at(static_cast<KernelArguments*>(to),
                      *static_cast<const KernelArguments*>(arguments));
  }
  static void run(const void* arguments) {
    const auto& self = *static_cast<const KernelArguments*>(arguments);
    std::apply(self.kernel, self.values);
  }
};

template <class... Parameters, class... Args>
void launch(const char* name, void (*kernel)(Parameters...), long long threads, int block,
            void* stream, const Args&... args) {
  using Arguments = KernelArguments<Parameters...>;
  static_assert((std::is_trivially_copyable_v<Parameters> && ...));
  static_assert((sizeof(Parameters) + ... + 0) <= kMaxParameterBytes);
  static_assert(alignof(Arguments) <= kParameterAlignment);
  if (threads == 0) {
    return;
  }
  const Arguments arguments{kernel, std::tuple<Parameters...>(static_cast<Parameters>(args)...)};
  run_grid({name, (threads + block - 1) / block, block, stream},
           {&arguments, sizeof(Arguments), &Arguments::copy, &Arguments::run});
}

#endif

}  // namespace fsdptrain::kernels::cuda
