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

// Of the tiles that one thread multiplies fastest.
cpu::GemmTile largest_tile(Isa isa) {
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
cpu::GemmTile cpu::gemm_tile(std::int64_t m, std::int64_t n, bool transposed, Isa isa) {
  constexpr std::int64_t kSmallest = 64;
  const cpu::GemmTile largest = largest_tile(isa);
  const bool is_large = m * n >= largest.rows * largest.columns;
  const std::int64_t tasks = transposed && is_large ? 2 : 4;
  std::int64_t row_parts = parts_of(m, largest.rows, transposed && is_large);
  std::int64_t column_parts = parts_of(n, largest.columns, transposed && is_large);
  const auto tile = [&] {
    return cpu::GemmTile{part_size(m, row_parts), part_size(n, column_parts)};
  };
  while (row_parts * column_parts < tasks && std::max(tile().rows, tile().columns) > kSmallest) {
    ++(tile().rows >= tile().columns ? row_parts : column_parts);
  }
  return tile();
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

void matmul(const Launch& launch, const View& out, const View& a, const View& b, double beta,
            const MatmulEpilogue& epilogue) {
  const bool has_epilogue = epilogue.has_bias || epilogue.activation != Activation::None;
  if (!is_row_major(out)) {
    check<ShapeError>(!has_epilogue, "matmul: an epilogue needs a row-major output");
    return matmul(launch, transposed(out), transposed(b), transposed(a), beta);
  }
  if (numel(out) == 0) {
    return;
  }
  if (a.sizes[a.dims - 1] == 0) {
    scale_output(launch, out, beta);
    if (!has_epilogue) {
      return;
    }
  }
  const cpu::GemmTile tile = cpu::gemm_tile(out.sizes[out.dims - 2], out.sizes[out.dims - 1],
                                            !is_row_major(a), launch.isa);
  Allocation scratch;
  if (a.dtype == DType::BFloat16) {
    const auto floats = cpu::matmul_scratch_floats(tile) * launch.pool->threads();
    scratch = launch.allocator->allocate(static_cast<std::size_t>(floats) * sizeof(float),
                                         MemoryCategory::Workspace);
  }
  run_on(launch, "matmul", [&]<Isa isa>() {
    cpu::prepare_gemm();
    const bool done = cpu::matmul<isa>(launch, out, a, b, beta, epilogue, tile, scratch.data());
    check(done, "matmul: the matrix library refused a tile of the product {} x {} x {}",
          out.sizes[out.dims - 2], out.sizes[out.dims - 1], a.sizes[a.dims - 1]);
  });
}

}  // namespace fsdptrain::kernels
