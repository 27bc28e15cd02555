#pragma once

#include <cstdint>

#include "runtime/base/isa.h"

// How a matrix product is cut into tasks.
namespace fsdptrain::kernels::cpu {

// The output tile of one task. Tiles begin at multiples of this size; the last ones may be smaller.
struct GemmTile {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// The tile of an m x n product: a function of the shape, the layout of the left operand and the
// variant alone. `transposed` says that the columns of the left operand, and not its rows, lie
// together. Rows and columns are multiples of 16, or at least the whole of m and n.
GemmTile gemm_tile(std::int64_t m, std::int64_t n, bool transposed, Isa isa);

// How much of the inner dimension of a bfloat16 product is widened at a time.
inline constexpr std::int64_t kPanelDepth = 512;

// Floats of scratch per thread of a bfloat16 product: the tile and one panel of each operand.
std::int64_t matmul_scratch_floats(const GemmTile& tile);

}  // namespace fsdptrain::kernels::cpu
