#pragma once

#include "kernels/segments.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void zero_segments(const Launch& launch, const View& out, const Range* segments,
                   std::int64_t num_segments);

}  // namespace fsdptrain::kernels::cpu
