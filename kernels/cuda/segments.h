#pragma once

#include "kernels/segments.h"

namespace fsdptrain::kernels::cuda {

void zero_segments(void* stream, const View& out, const Range* segments, std::int64_t num_segments);

}  // namespace fsdptrain::kernels::cuda
