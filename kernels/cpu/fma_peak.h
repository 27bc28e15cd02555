#pragma once

#include "kernels/fma_peak.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
std::int64_t fma_work(const Launch& launch, float* sums, std::int64_t tasks,
                      std::int64_t iterations);

}  // namespace fsdptrain::kernels::cpu
