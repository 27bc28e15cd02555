#pragma once

#include <functional>

#include "kernels/operands.h"
#include "runtime/base/view.h"

namespace fsdptrain::kernels::cuda {

// What a launch on CUDA does for a kernel that is not written for it yet. Every program is linked
// with one definition of it:
//   none  DeviceError: the program was built without CUDA
//   real  DeviceError that names `op`
//   fake  (tests) an operation on the stream of the launch, which touches `operands` and calls
//         kernel(launch on the CPU) when its turn comes
void stand_in(const Launch& launch, const char* op, const Operands& operands,
              std::function<void(const Launch&)>&& kernel);

}  // namespace fsdptrain::kernels::cuda
