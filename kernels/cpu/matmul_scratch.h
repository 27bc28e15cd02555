#pragma once

#include "kernels/matmul.h"

namespace fsdptrain::kernels::cpu {

// How much of the inner dimension of a bfloat16 product is widened at a time.
inline constexpr std::int64_t kPanelDepth = 512;

// Floats of scratch per thread of a bfloat16 product: the tile and one panel of each operand.
std::int64_t matmul_scratch_floats(const GemmTile& tile);

}  // namespace fsdptrain::kernels::cpu
