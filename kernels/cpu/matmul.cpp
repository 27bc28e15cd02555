#include "kernels/cpu/matmul.h"

#include "kernels/cpu/gemm_kernel.h"
#include "kernels/cpu/parallel.h"
#include "kernels/functors/activation.h"
#include "kernels/functors/element.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// One matrix of a batch.
template <class T>
struct Matrix {
  T* data;
  std::int64_t batch_stride;
  std::int64_t stride;
  bool transposed;

  FSDPTRAIN_HOST_DEVICE T* at(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    const std::int64_t offset = transposed ? column * stride + row : row * stride + column;
    return data + batch * batch_stride + offset;
  }
};

template <class T>
FSDPTRAIN_HOST_DEVICE Matrix<T> as_matrix(const View& view) {
  const int row = view.dims - 2;
  const int column = view.dims - 1;
  const std::int64_t rows = view.sizes[row];
  const std::int64_t columns = view.sizes[column];
  Matrix<T> matrix{static_cast<T*>(view.data), view.dims == 3 ? view.strides[0] : 0, 0, false};
  // Strides of dimensions of size 1 say nothing; libraries want at least the width.
  if (columns == 1 || view.strides[column] == 1) {
    matrix.stride = rows == 1 ? max(columns, 1) : view.strides[row];
  } else {
    matrix.transposed = true;
    matrix.stride = columns == 1 ? max(rows, 1) : view.strides[column];
  }
  return matrix;
}

struct TileTask {
  std::int64_t batch, row, column, m, n, k;
};

// The bias of the columns from `column` on; null for none.
template <class T>
FSDPTRAIN_HOST_DEVICE const T* bias_at(const MatmulEpilogue& epilogue, std::int64_t column) {
  return epilogue.has_bias ? static_cast<const T*>(epilogue.bias.data) + column : nullptr;
}

// out = tile + beta * out + bias, rounded once, for a tile computed in float.
template <bool has_beta, bool has_bias, class Out, class In>
FSDPTRAIN_HOST_DEVICE void store_rows(const Matrix<Out>& out, const TileTask& t, const float* tile,
                                      float beta, const In* bias) {
  for (std::int64_t i = 0; i < t.m; ++i) {
    Out* const to = out.at(t.batch, t.row + i, t.column);
    const float* const from = tile + i * t.n;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < t.n; ++j) {
      float value = from[j];
      if constexpr (has_beta) {
        value += beta * load(to[j]);
      }
      if constexpr (has_bias) {
        value += load(bias[j]);
      }
      to[j] = Store<Out>::to(value);
    }
  }
}
template <class Out, class In>
FSDPTRAIN_HOST_DEVICE void store_tile(const Matrix<Out>& out, const TileTask& t, const float* tile,
                                      float beta, const In* bias) {
  if (bias == nullptr) {
    beta == 0.0f ? store_rows<false, false>(out, t, tile, beta, bias)
                 : store_rows<true, false>(out, t, tile, beta, bias);
  } else {
    beta == 0.0f ? store_rows<false, true>(out, t, tile, beta, bias)
                 : store_rows<true, true>(out, t, tile, beta, bias);
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE void add_bias(const Matrix<T>& out, const TileTask& t, const T* bias) {
  for (std::int64_t i = 0; i < t.m; ++i) {
    T* const to = out.at(t.batch, t.row + i, t.column);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < t.n; ++j) {
      to[j] += bias[j];
    }
  }
}

template <class T, class F>
FSDPTRAIN_HOST_DEVICE void activate_tile(const View& activated, const View& out, const TileTask& t,
                                         F f) {
  const auto to = as_matrix<T>(activated);
  const auto from = as_matrix<const T>(out);
  for (std::int64_t i = 0; i < t.m; ++i) {
    T* const y = to.at(t.batch, t.row + i, t.column);
    const T* const x = from.at(t.batch, t.row + i, t.column);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < t.n; ++j) {
      y[j] = Store<T>::to(apply(f, load(x[j])));
    }
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE void activate_tile(const MatmulEpilogue& epilogue, const View& out,
                                         const TileTask& t) {
  switch (epilogue.activation) {
    case Activation::None:
      return;
    case Activation::Gelu:
      return activate_tile<T>(epilogue.activated, out, t, Gelu{});
    case Activation::GeluTanh:
      return activate_tile<T>(epilogue.activated, out, t, GeluTanh{});
  }
}

// Copies rows of an operand, as they lie in memory, into dense float rows.
FSDPTRAIN_HOST_DEVICE cpu::GemmOperand<float> widen(const Matrix<const bfloat16>& matrix,
                                                    std::int64_t batch, std::int64_t row,
                                                    std::int64_t column, std::int64_t rows,
                                                    std::int64_t columns, float* scratch) {
  const std::int64_t lines = matrix.transposed ? columns : rows;
  const std::int64_t length = matrix.transposed ? rows : columns;
  const bfloat16* const first = matrix.at(batch, row, column);
  for (std::int64_t line = 0; line < lines; ++line) {
    const bfloat16* const from = first + line * matrix.stride;
    float* const to = scratch + line * length;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < length; ++i) {
      to[i] = to_float(from[i]);
    }
  }
  return {scratch, max(length, 1), matrix.transposed};
}

// float32 and float64: straight from the operands to the output. Without terms to sum, the output
// is what it is to be already.
template <class T>
FSDPTRAIN_HOST_DEVICE bool multiply_tile(const TileTask& t, const View& out, const View& a,
                                         const View& b, double beta,
                                         const MatmulEpilogue& epilogue) {
  const auto c = as_matrix<T>(out);
  const auto left = as_matrix<const T>(a);
  const auto right = as_matrix<const T>(b);
  const bool done =
      t.k == 0 ||
      cpu::gemm_kernel(
          c.at(t.batch, t.row, t.column), c.stride,
          cpu::GemmOperand<T>{left.at(t.batch, t.row, 0), left.stride, left.transposed},
          cpu::GemmOperand<T>{right.at(t.batch, 0, t.column), right.stride, right.transposed}, t.m,
          t.n, t.k, static_cast<T>(beta));
  if (const T* const bias = bias_at<T>(epilogue, t.column)) {
    add_bias(c, t, bias);
  }
  activate_tile<T>(epilogue, out, t);
  return done;
}

// bfloat16: panels of kPanelDepth are widened into scratch and summed in float.
template <class Out>
FSDPTRAIN_HOST_DEVICE bool multiply_tile_widened(const TileTask& t, const View& out, const View& a,
                                                 const View& b, double beta,
                                                 const MatmulEpilogue& epilogue, float* scratch) {
  const auto left = as_matrix<const bfloat16>(a);
  const auto right = as_matrix<const bfloat16>(b);
  float* const tile = scratch;
  float* const left_panel = tile + t.m * t.n;
  float* const right_panel = left_panel + t.m * cpu::kPanelDepth;
  for (std::int64_t i = 0; t.k == 0 && i < t.m * t.n; ++i) {
    tile[i] = 0.0f;
  }
  for (std::int64_t p = 0; p < t.k; p += cpu::kPanelDepth) {
    const std::int64_t depth = min(cpu::kPanelDepth, t.k - p);
    const auto x = widen(left, t.batch, t.row, p, t.m, depth, left_panel);
    const auto y = widen(right, t.batch, p, t.column, depth, t.n, right_panel);
    if (!cpu::gemm_kernel(tile, t.n, x, y, t.m, t.n, depth, p == 0 ? 0.0f : 1.0f)) {
      return false;
    }
  }
  store_tile(as_matrix<Out>(out), t, tile, static_cast<float>(beta),
             bias_at<bfloat16>(epilogue, t.column));
  activate_tile<Out>(epilogue, out, t);
  return true;
}

}  // namespace FSDPTRAIN_VARIANT

template <>
bool cpu::matmul<kIsa>(const Launch& launch, const View& out, const View& a, const View& b,
                       double beta, const MatmulEpilogue& epilogue, const GemmTile& tile,
                       void* scratch) {
  const int row_dim = out.dims - 2;
  const std::int64_t batches = out.dims == 3 ? out.sizes[0] : 1;
  const std::int64_t m = out.sizes[row_dim];
  const std::int64_t n = out.sizes[row_dim + 1];
  const std::int64_t k = a.sizes[row_dim + 1];
  const std::int64_t tile_rows = ceil_div(m, tile.rows);
  const std::int64_t tile_columns = ceil_div(n, tile.columns);
  const std::int64_t scratch_floats = matmul_scratch_floats(tile);
  bool refused = false;
  parallel_for_threads(
      launch, batches * tile_rows * tile_columns, [&](std::int64_t index, int thread) {
        const std::int64_t column = index % tile_columns * tile.columns;
        const std::int64_t row = index / tile_columns % tile_rows * tile.rows;
        const TileTask task{
            index / (tile_columns * tile_rows), row, column, min(tile.rows, m - row),
            min(tile.columns, n - column),      k};
        float* const own = static_cast<float*>(scratch) + thread * scratch_floats;
        bool done = false;
        if (a.dtype == DType::Float64) {
          done = multiply_tile<double>(task, out, a, b, beta, epilogue);
        } else if (a.dtype == DType::Float32) {
          done = multiply_tile<float>(task, out, a, b, beta, epilogue);
        } else if (out.dtype == DType::Float32) {
          done = multiply_tile_widened<float>(task, out, a, b, beta, epilogue, own);
        } else {
          done = multiply_tile_widened<bfloat16>(task, out, a, b, beta, epilogue, own);
        }
        if (!done) {
          __atomic_store_n(&refused, true, __ATOMIC_RELAXED);
        }
      });
  return !refused;
}

}  // namespace fsdptrain::kernels
