#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/copy.h"
#include "kernels/cpu/gemm_kernel.h"
#include "kernels/cpu/matmul.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {
namespace {

// The same matrix seen as its transpose.
View transposed(View view) {
  std::swap(view.sizes[view.dims - 2], view.sizes[view.dims - 1]);
  std::swap(view.strides[view.dims - 2], view.strides[view.dims - 1]);
  return view;
}

bool is_row_major(const View& view) {
  return view.sizes[view.dims - 1] == 1 || view.strides[view.dims - 1] == 1;
}

std::int64_t numel(const View& view) {
  std::int64_t count = 1;
  for (int dim = 0; dim < view.dims; ++dim) {
    count *= view.sizes[dim];
  }
  return count;
}

void scale_output(const Launch& launch, const View& out, double beta) {
  if (beta == 0) {
    fill(launch, out, 0);
  } else {
    check(beta == 1, "matmul: a product over nothing takes beta 0 or 1, got {}", beta);
  }
}

}  // namespace

// Tiles as large as oneDNN needs for its packing to pay, and small enough that some threads more
// find work: both measured on GPT-2's shapes. With AVX-512 a packed panel of fewer rows suffices.
cpu::GemmTile cpu::gemm_tile(std::int64_t m, std::int64_t n, Isa isa) {
  constexpr std::int64_t kTasks = 8;
  constexpr std::int64_t kSmallest = 64;
  const GemmTile largest{isa == Isa::Avx512 ? 256 : 512, 768};
  GemmTile tile{std::clamp<std::int64_t>(m, 1, largest.rows),
                std::clamp<std::int64_t>(n, 1, largest.columns)};
  const auto tasks = [&] {
    return ((m + tile.rows - 1) / tile.rows) * ((n + tile.columns - 1) / tile.columns);
  };
  while (tasks() < kTasks && std::max(tile.rows, tile.columns) > kSmallest) {
    std::int64_t& longer = tile.rows >= tile.columns ? tile.rows : tile.columns;
    // A multiple of 16 keeps whole vectors in every tile but the last.
    longer = std::max(kSmallest, (longer / 2 + 15) / 16 * 16);
  }
  return tile;
}

std::int64_t cpu::matmul_scratch_floats(const GemmTile& tile) {
  return tile.rows * tile.columns + (tile.rows + tile.columns) * kPanelDepth;
}

bool is_matrix(const View& view) {
  const std::int64_t rows = view.sizes[view.dims - 2];
  const std::int64_t columns = view.sizes[view.dims - 1];
  const std::int64_t row_stride = view.strides[view.dims - 2];
  const std::int64_t column_stride = view.strides[view.dims - 1];
  const bool row_major = (columns == 1 || column_stride == 1) &&
                         (rows == 1 || row_stride >= std::max<std::int64_t>(columns, 1));
  const bool column_major = (rows == 1 || row_stride == 1) &&
                            (columns == 1 || column_stride >= std::max<std::int64_t>(rows, 1));
  return row_major || column_major;
}

void matmul(const Launch& launch, const View& out, const View& a, const View& b, double beta) {
  if (!is_row_major(out)) {
    return matmul(launch, transposed(out), transposed(b), transposed(a), beta);
  }
  if (numel(out) == 0) {
    return;
  }
  if (a.sizes[a.dims - 1] == 0) {
    return scale_output(launch, out, beta);
  }
  const cpu::GemmTile tile =
      cpu::gemm_tile(out.sizes[out.dims - 2], out.sizes[out.dims - 1], launch.isa);
  Allocation scratch;
  if (a.dtype == DType::BFloat16) {
    const auto floats = cpu::matmul_scratch_floats(tile) * launch.pool->threads();
    scratch = launch.allocator->allocate(static_cast<std::size_t>(floats) * sizeof(float),
                                         MemoryCategory::Workspace);
  }
  run_on(launch, "matmul", [&]<Isa isa>() {
    cpu::prepare_gemm();
    const bool done = cpu::matmul<isa>(launch, out, a, b, beta, scratch.data());
    check(done, "matmul: the matrix library refused a tile of the product {} x {} x {}",
          out.sizes[out.dims - 2], out.sizes[out.dims - 1], a.sizes[a.dims - 1]);
  });
}

}  // namespace fsdptrain::kernels
