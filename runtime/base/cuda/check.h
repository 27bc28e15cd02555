#pragma once

#include <cuda_runtime_api.h>

#include "runtime/base/error.h"

namespace fsdptrain::cuda {

// DeviceError naming the call and what CUDA said of it, unless `status` is success.
inline void check_status(const char* call, cudaError_t status) {
  if (status != cudaSuccess) [[unlikely]] {
    // Else the next launch would report it again.
    static_cast<void>(cudaGetLastError());
    fail<DeviceError>("{}: CUDA says {}: {}", call, cudaGetErrorName(status),
                      cudaGetErrorString(status));
  }
}

}  // namespace fsdptrain::cuda
