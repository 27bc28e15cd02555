#pragma once

#include <span>

#include "kernels/range.h"
#include "runtime/base/view.h"

namespace fsdptrain::kernels {

// out = 0 in the elements of the segments, which do not overlap; all others stay. `out` is
// contiguous, of any dtype.
void zero_segments(const Launch& launch, const View& out, std::span<const Range> segments);

}  // namespace fsdptrain::kernels
