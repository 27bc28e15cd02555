// What a program without CUDA does instead of launching.
#include "kernels/cuda/simt.h"
#include "kernels/cuda/stand_in.h"
#include "runtime/base/error.h"

namespace fsdptrain::kernels::cuda {
namespace {

[[noreturn]] void fail_without_cuda(const char* name) {
  fail<DeviceError>("{}: this program was built without CUDA: configure with the preset cuda",
                    name);
}

}  // namespace

void run_grid(const Grid& grid, const BoundKernel& /*kernel*/) {
  fail_without_cuda(grid.name);
}

void stand_in(const Launch& /*launch*/, const char* op, const Operands& /*operands*/,
              std::function<void(const Launch&)>&& /*kernel*/) {
  fail_without_cuda(op);
}

}  // namespace fsdptrain::kernels::cuda
