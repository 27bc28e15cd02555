#pragma once

#include <cstdint>

#include "runtime/base/view.h"

// Matrix products. The work is cut into output tiles whose size follows from the shape, the layout
// of the left operand (rows or columns together) and the ISA variant alone, so that the bits are
// the same for any number of threads. A transposed view and a dense copy of it hold the same
// numbers in other layouts: their products may differ in the last bits. One thread multiplies a
// tile through oneDNN (float32) or Eigen (float64, and float32 where the build says
// FSDPTRAIN_GEMM=eigen). bfloat16 is widened tile by tile and multiplied in float32.
//
// oneDNN is held to an ISA variant once per process: the first product limits it to
// select_isa(), which follows FSDPTRAIN_ISA, and ConfigError is raised if oneDNN refuses. A rank
// context with a lower Options::isa in the same process still multiplies float32 and bfloat16
// with the variant of the process; only the tiles follow its own.
namespace fsdptrain::kernels {

// Whether a view can be an operand: the strides of its last two dimensions are those of a
// row-major or column-major matrix, possibly with gaps between rows.
bool is_matrix(const View& view);

enum class Activation : std::uint8_t { None, Gelu, GeluTanh };

// What is done to a product while its tiles are in the cache.
struct MatmulEpilogue {
  // [N], dense, of the operands' dtype: added to every row.
  View bias = {};
  bool has_bias = false;
  // activated = activation(out), of out's shape, strides and dtype; not read for None.
  Activation activation = Activation::None;
  View activated = {};
};

// out[M, N] = a[M, K] @ b[K, N] + beta * out, or the same for each index of a leading batch
// dimension. All views satisfy is_matrix and have two dimensions, or three with equal batch
// sizes. Dtypes: a and b float32, float64 or bfloat16; out the same, or float32 for bfloat16.
// An epilogue needs a row-major `out`.
void matmul(const Launch& launch, const View& out, const View& a, const View& b, double beta,
            const MatmulEpilogue& epilogue = {});

}  // namespace fsdptrain::kernels
