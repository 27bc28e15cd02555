#pragma once

// The only CUDA header that kernel files include. Compiled by nvcc it is CUDA; compiled as C++,
// in a build without CUDA, the kernels become functions that nothing calls and every launch
// raises DeviceError, so that callers need no other path.
#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

namespace fsdptrain::kernels::cuda {

// DeviceError naming the kernel and the reason.
[[noreturn]] void fail_launch(const char* kernel, const char* reason);

#if defined(__CUDACC__)

// Runs kernel(args...) on ceil(threads / block) blocks of `block` threads.
template <class... Parameters, class... Args>
void launch(const char* name, void (*kernel)(Parameters...), long long threads, int block,
            void* stream, const Args&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((threads + block - 1) / block));
  config.blockDim = dim3(static_cast<unsigned>(block));
  config.stream = static_cast<cudaStream_t>(stream);
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...);
  if (status != cudaSuccess) {
    fail_launch(name, cudaGetErrorString(status));
  }
}

#else

#define __global__

struct Index3 {
  unsigned x, y, z;
};
inline constexpr Index3 threadIdx{0, 0, 0};
inline constexpr Index3 blockIdx{0, 0, 0};
inline constexpr Index3 blockDim{1, 1, 1};

template <class... Parameters, class... Args>
void launch(const char* name, void (*)(Parameters...), long long, int, void*, const Args&...) {
  fail_launch(name, "this program was built without CUDA: configure with the preset cuda");
}

#endif

}  // namespace fsdptrain::kernels::cuda
