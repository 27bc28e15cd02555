#pragma once

#include <cstdint>

#include "runtime/base/view.h"

// The roof of all arithmetic: multiply-and-add in registers, as math::fma of the variant does it.
namespace fsdptrain::kernels {

// Runs `tasks` tasks of `iterations` rounds of independent float32 multiply-adds on the threads
// of the launch; returns the number of operations, two to a multiply-add. `sums`: `tasks` floats
// that hold what was computed, so that it is computed. Of the CPU alone: DeviceError on CUDA.
std::int64_t fma_work(const Launch& launch, float* sums, std::int64_t tasks,
                      std::int64_t iterations);

}  // namespace fsdptrain::kernels
