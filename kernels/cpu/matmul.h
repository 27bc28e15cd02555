#pragma once

#include "kernels/matmul.h"

namespace fsdptrain::kernels::cpu {

// The output tile of one task: a function of the shape and the variant alone.
struct GemmTile {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
GemmTile gemm_tile(std::int64_t m, std::int64_t n, Isa isa);

// How much of the inner dimension of a bfloat16 product is widened at a time.
inline constexpr std::int64_t kPanelDepth = 512;

// Floats of scratch per thread of a bfloat16 product: the tile and one panel of each operand.
std::int64_t matmul_scratch_floats(const GemmTile& tile);

// False if the matrix library refused a tile.
template <Isa isa>
bool matmul(const Launch& launch, const View& out, const View& a, const View& b, double beta,
            void* scratch);

}  // namespace fsdptrain::kernels::cpu
