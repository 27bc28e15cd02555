#include "kernels/cuda/simt.h"
#include "runtime/base/error.h"

namespace fsdptrain::kernels::cuda {

void fail_launch(const char* kernel, const char* reason) {
  fail<DeviceError>("{}: the kernel was not launched: {}", kernel, reason);
}

}  // namespace fsdptrain::kernels::cuda
