#pragma once

namespace fsdptrain::kernels::cuda {

// DeviceError naming the kernel and why it was not launched: in a unit of its own, because nvcc
// need not read how errors are made.
[[noreturn]] void fail_launch(const char* kernel, const char* reason);

}  // namespace fsdptrain::kernels::cuda
