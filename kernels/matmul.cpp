#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/copy.h"
#include "kernels/cpu/gemm_kernel.h"
#include "kernels/cpu/gemm_tile.h"
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

struct Workspace {
  cpu::GemmTile tile;
  Allocation scratch;
};

// out is row-major and has elements. With nothing to sum it holds what is to be added already.
void multiply(const Launch& launch, const View& out, const View& a, const View& b, double beta,
              const MatmulEpilogue& epilogue) {
  const std::int64_t rows = out.sizes[out.dims - 2];
  const std::int64_t columns = out.sizes[out.dims - 1];
  const std::int64_t depth = a.sizes[a.dims - 1];
  const auto allocate = [=](const Launch& cpu) {
    Workspace workspace{cpu::gemm_tile(rows, columns, !is_row_major(a), cpu.isa), {}};
    if (a.dtype == DType::BFloat16) {
      const auto floats = cpu::matmul_scratch_floats(workspace.tile) * cpu.pool->threads();
      workspace.scratch = cpu.allocator->allocate(static_cast<std::size_t>(floats) * sizeof(float),
                                                  MemoryCategory::Workspace);
    }
    return workspace;
  };
  run_on(launch, "matmul",
         {.writes = {out, {epilogue.activated, epilogue.activation != Activation::None}},
          .reads = {a, b, {epilogue.bias, epilogue.has_bias}, {out, beta != 0 || depth == 0}}},
         allocate, [=]<Isa isa>(const Launch& cpu, const Workspace& workspace) {
           cpu::prepare_gemm();
           const bool done = cpu::matmul<isa>(cpu, out, a, b, beta, epilogue, workspace.tile,
                                              workspace.scratch.data());
           check(done, "matmul: the matrix library refused a tile of the product {} x {} x {}",
                 rows, columns, depth);
         });
}

}  // namespace

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
  multiply(launch, out, a, b, beta, epilogue);
}

}  // namespace fsdptrain::kernels
