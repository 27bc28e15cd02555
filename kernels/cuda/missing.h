#pragma once

#include "runtime/base/error.h"

namespace fsdptrain::kernels::cuda {

// For ops that have no CUDA kernel yet.
[[noreturn]] inline void missing(const char* op) {
  fail<DeviceError>("{}: there is no CUDA kernel for it yet; run it on cpu", op);
}

}  // namespace fsdptrain::kernels::cuda
