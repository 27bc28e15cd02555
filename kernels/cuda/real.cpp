// The part of the CUDA kernels that nvcc need not compile.
#include "kernels/cuda/launch_error.h"
#include "kernels/cuda/stand_in.h"
#include "runtime/base/error.h"

namespace fsdptrain::kernels::cuda {

void fail_launch(const char* kernel, const char* reason) {
  fail<DeviceError>("{}: the kernel was not launched: {}", kernel, reason);
}

void stand_in(const Launch& /*launch*/, const char* op, const Operands& /*operands*/,
              std::function<void(const Launch&)>&& /*kernel*/) {
  fail<DeviceError>("{}: there is no CUDA kernel for it yet; run it on cpu", op);
}

}  // namespace fsdptrain::kernels::cuda
