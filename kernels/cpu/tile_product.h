#pragma once

#include <cstdint>

#include "kernels/cpu/pack.h"

// Products of small matrices that lie in scratch: what flash attention is made of.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// The part of a product that is held in vector registers: as many sums as hide the latency of
// fma. AVX-512 has 32 registers, the others 16.
inline constexpr int kTileRows = kIsa == Isa::Avx512 ? 8 : 4;
inline constexpr int kTilePacks = 2;
template <class T>
inline constexpr int kTileColumns = kTilePacks* kPackLanes<T>;

// A matrix in scratch; element (row, column) is data[row * row_stride + column * column_stride].
template <class T>
struct Operand {
  const T* data;
  std::int64_t row_stride;
  std::int64_t column_stride;
};

// c = a b, or c += a b, for one tile of c over k in [k_begin, k_end); b has unit column stride.
template <bool accumulate, class T>
FSDPTRAIN_HOST_DEVICE void tile_product(T* c, std::int64_t c_stride, const Operand<T>& a,
                                        const T* b, std::int64_t b_stride, std::int64_t k_begin,
                                        std::int64_t k_end) {
  Pack<T> sums[kTileRows][kTilePacks];
#pragma GCC unroll 8
  for (int row = 0; row < kTileRows; ++row) {
#pragma GCC unroll 8
    for (int pack = 0; pack < kTilePacks; ++pack) {
      if constexpr (accumulate) {
        sums[row][pack] = load_pack(c + row * c_stride + pack * kPackLanes<T>);
      } else {
        sums[row][pack] = Pack<T>{};
      }
    }
  }
  for (std::int64_t k = k_begin; k < k_end; ++k) {
    Pack<T> b_packs[kTilePacks];
#pragma GCC unroll 8
    for (int pack = 0; pack < kTilePacks; ++pack) {
      b_packs[pack] = load_pack(b + k * b_stride + pack * kPackLanes<T>);
    }
#pragma GCC unroll 8
    for (int row = 0; row < kTileRows; ++row) {
      const T factor = a.data[row * a.row_stride + k * a.column_stride];
#pragma GCC unroll 8
      for (int pack = 0; pack < kTilePacks; ++pack) {
        sums[row][pack] = add_product<T>(sums[row][pack], factor, b_packs[pack]);
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kTileRows; ++row) {
#pragma GCC unroll 8
    for (int pack = 0; pack < kTilePacks; ++pack) {
      store_pack(c + row * c_stride + pack * kPackLanes<T>, sums[row][pack]);
    }
  }
}

// What a group of kTileRows rows of a product needs: the tiles of columns that [column_begin,
// column_end) touches, and the terms [k_begin, k_end) of the sums.
struct ProductRange {
  std::int64_t column_begin;
  std::int64_t column_end;
  std::int64_t k_begin;
  std::int64_t k_end;
};

// The most rows of a product.
inline constexpr std::int64_t kProductRows = 64;

// c = a b, or c += a b. `rows` are rounded up to kTileRows, `columns` to kTileColumns: c, a and b
// have that many. range(row) says what the group that starts at `row` needs; other elements of c
// are left as they are. Columns are the outer loop: a panel of b stays in the first-level cache.
template <bool accumulate, class T, class Range>
FSDPTRAIN_HOST_DEVICE void product(T* c, std::int64_t c_stride, std::int64_t rows,
                                   std::int64_t columns, const Operand<T>& a, const T* b,
                                   std::int64_t b_stride, const Range& range) {
  ProductRange ranges[kProductRows / kTileRows];
  for (std::int64_t row = 0; row < rows; row += kTileRows) {
    ranges[row / kTileRows] = range(row);
  }
  for (std::int64_t column = 0; column < columns; column += kTileColumns<T>) {
    for (std::int64_t row = 0; row < rows; row += kTileRows) {
      const ProductRange& needed = ranges[row / kTileRows];
      if (column + kTileColumns<T> <= needed.column_begin || column >= needed.column_end) {
        continue;
      }
      tile_product<accumulate>(
          c + row * c_stride + column, c_stride,
          Operand<T>{a.data + row * a.row_stride, a.row_stride, a.column_stride}, b + column,
          b_stride, needed.k_begin, needed.k_end);
    }
  }
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
