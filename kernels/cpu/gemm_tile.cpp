#include "kernels/cpu/gemm_tile.h"

#include <algorithm>

namespace fsdptrain::kernels::cpu {
namespace {

// Of the tiles that one thread multiplies fastest.
GemmTile largest_tile(Isa isa) {
  switch (isa) {
    case Isa::Baseline:
    case Isa::Avx2:
      return {512, 768};
    case Isa::Avx512:
      return {256, 768};
  }
  __builtin_unreachable();
}

// Parts of about `largest`, rounded up to more of them, or down.
std::int64_t parts_of(std::int64_t size, std::int64_t largest, bool down) {
  return std::max<std::int64_t>(1, down ? size / largest : (size + largest - 1) / largest);
}

// The size of all parts but the last: a multiple of 16 keeps whole vectors in them.
std::int64_t part_size(std::int64_t size, std::int64_t parts) {
  const std::int64_t even = (size + parts - 1) / parts;
  return parts == 1 ? std::max<std::int64_t>(size, 1) : (even + 15) / 16 * 16;
}

}  // namespace

// What GPT-2's products were measured with, on two threads. oneDNN copies the operands of a large
// product and reads those of a small one in place, which costs half the speed where the left one is
// transposed and its rows lie a multiple of 4 KiB apart: such tiles stay large, even if few.
GemmTile gemm_tile(std::int64_t m, std::int64_t n, bool transposed, Isa isa) {
  constexpr std::int64_t kSmallest = 64;
  const GemmTile largest = largest_tile(isa);
  const bool is_large = m * n >= largest.rows * largest.columns;
  const std::int64_t tasks = transposed && is_large ? 2 : 4;
  std::int64_t row_parts = parts_of(m, largest.rows, transposed && is_large);
  std::int64_t column_parts = parts_of(n, largest.columns, transposed && is_large);
  const auto tile = [&] { return GemmTile{part_size(m, row_parts), part_size(n, column_parts)}; };
  while (row_parts * column_parts < tasks && std::max(tile().rows, tile().columns) > kSmallest) {
    ++(tile().rows >= tile().columns ? row_parts : column_parts);
  }
  return tile();
}

std::int64_t matmul_scratch_floats(const GemmTile& tile) {
  return tile.rows * tile.columns + (tile.rows + tile.columns) * kPanelDepth;
}

}  // namespace fsdptrain::kernels::cpu
