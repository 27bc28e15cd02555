#pragma once

#include <utility>

#include "kernels/cpu/parallel.h"
#include "kernels/elementwise.h"
#include "kernels/functors/element.h"
#include "kernels/functors/strided_loop.h"

// The CPU loop behind map(): included by the units that instantiate it, never by callers.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Elements per task: large enough to hide a region's cost, small enough to balance.
inline constexpr std::int64_t kMapBlock = 16384;

template <int operands>
using RowFunction = void (*)(const void* context, const std::int64_t (&offsets)[operands],
                             std::int64_t inner_begin, std::int64_t inner_end);

// One function for all formulas: what it costs is divided by the elements of a row.
template <int operands>
[[gnu::noinline]] void run_rows(const Launch& launch, const StridedLoop<operands>& loop,
                                RowFunction<operands> row, const void* context) {
  if (loop.outer == 0 || loop.inner == 0) {
    return;
  }
  const std::int64_t inner_blocks = ceil_div(loop.inner, kMapBlock);
  const std::int64_t rows_per_block = max(1, kMapBlock / loop.inner);
  const std::int64_t outer_blocks = ceil_div(loop.outer, rows_per_block);
  parallel_for(launch, outer_blocks * inner_blocks, [&](std::int64_t task) {
    const std::int64_t inner_begin = task % inner_blocks * kMapBlock;
    const std::int64_t inner_end = min(loop.inner, inner_begin + kMapBlock);
    const std::int64_t first = task / inner_blocks * rows_per_block;
    const std::int64_t last = min(loop.outer, first + rows_per_block);
    for (std::int64_t index = first; index < last; ++index) {
      std::int64_t offsets[operands] = {};
      std::int64_t rest = index;
      for (int dim = 0; dim < loop.dims; ++dim) {
        const std::int64_t position = rest % loop.sizes[dim];
        rest /= loop.sizes[dim];
        for (int k = 0; k < operands; ++k) {
          offsets[k] += position * loop.strides[k][dim];
        }
      }
      row(context, offsets, inner_begin, inner_end);
    }
  });
}

// Calls row(offsets, inner_begin, inner_end) for every row of the loop, in parallel blocks;
// offsets[k] is operand k's first element of the row.
template <int operands, class Row>
FSDPTRAIN_HOST_DEVICE void for_each_row(const Launch& launch, const StridedLoop<operands>& loop,
                                        const Row& row) {
  run_rows<operands>(
      launch, loop,
      [](const void* context, const std::int64_t(&offsets)[operands], std::int64_t begin,
         std::int64_t end) { (*static_cast<const Row*>(context))(offsets, begin, end); },
      &row);
}

// make_loop(), compiled once for all formulas.
template <int operands>
[[gnu::noinline]] StridedLoop<operands> row_loop(const View* const (&views)[operands]) {
  return make_loop<operands>(views);
}

// A piece of a strided row to and from dense memory: one function per element type, for all
// formulas. Stride 0 repeats one element.
template <class E>
[[gnu::noinline]] void pack_piece(E* __restrict piece, const E* from, std::int64_t stride,
                                  std::int64_t count) {
  if (stride == 0) {
    const E element = *from;
    for (std::int64_t i = 0; i < count; ++i) {
      piece[i] = element;
    }
    return;
  }
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < count; ++i) {
    piece[i] = from[i * stride];
  }
}
template <class E>
[[gnu::noinline]] void unpack_piece(E* to, std::int64_t stride, const E* __restrict piece,
                                    std::int64_t count) {
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < count; ++i) {
    to[i * stride] = piece[i];
  }
}

// result may be one of the inputs.
template <class F, class Out, class... E>
FSDPTRAIN_HOST_DEVICE void compute_row(F f, Out* result, std::int64_t count, const E*... in) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    result[i] = Store<Out>::to(apply(f, load(in[i])...));
  }
}

// The elements of a strided operand that are computed at a time.
inline constexpr std::int64_t kMapPiece = 512;

// Pieces of a row, dense: the row itself if it is, else a copy. So every formula is compiled to
// one loop, over dense rows.
template <class E>
class RowReader {
 public:
  FSDPTRAIN_HOST_DEVICE RowReader(const void* data, std::int64_t offset, std::int64_t stride)
      : row_(static_cast<const E*>(data) + offset), stride_(stride) {}

  FSDPTRAIN_HOST_DEVICE const E* read(std::int64_t begin, std::int64_t count) {
    if (stride_ == 1) {
      return row_ + begin;
    }
    pack_piece(piece_, row_ + begin * stride_, stride_, count);
    return piece_;
  }

 private:
  const E* row_;
  std::int64_t stride_;
  E piece_[kMapPiece];
};

template <class T, class F, class... In, std::size_t... k>
FSDPTRAIN_HOST_DEVICE void map_typed(const Launch& launch, F f, std::index_sequence<k...>,
                                     const StridedLoop<sizeof...(In) + 1>& loop, const View& out,
                                     const In&... in) {
  using Out = typename F::template Out<T>;
  bool dense = true;
  for (const std::int64_t stride : loop.inner_strides) {
    dense = dense && stride == 1;
  }
  const std::int64_t out_stride = loop.inner_strides[0];
  for_each_row(launch, loop,
               [&](const std::int64_t* offsets, std::int64_t begin, std::int64_t end) {
                 Out* const row = static_cast<Out*>(out.data) + offsets[0];
                 Out results[kMapPiece];
                 // Inlined, or the loop would read through the closure and not vectorise.
                 const auto body = [&](auto... readers) __attribute__((always_inline)) {
                   const std::int64_t piece = dense ? end - begin : kMapPiece;
                   for (std::int64_t first = begin; first < end; first += piece) {
                     const std::int64_t count = min(piece, end - first);
                     Out* const result = out_stride == 1 ? row + first : results;
                     compute_row(f, result, count, readers.read(first, count)...);
                     if (out_stride != 1) {
                       unpack_piece(row + first * out_stride, out_stride, results, count);
                     }
                   }
                 };
                 body(RowReader<typename F::template In<T, k>>(in.data, offsets[k + 1],
                                                               loop.inner_strides[k + 1])...);
               });
}

}  // namespace FSDPTRAIN_VARIANT

template <Isa isa, class F, class... In>
void cpu::map(const Launch& launch, F f, const View& out, const In&... in) {
  // Conditions come first: the last input has the dtype that the formula computes in.
  const View* const views[] = {&in...};
  const auto loop = row_loop<sizeof...(In) + 1>({&out, &in...});
  const auto run = [&]<class T>() {
    map_typed<T>(launch, f, std::index_sequence_for<In...>{}, loop, out, in...);
  };
  const DType dtype = views[sizeof...(In) - 1]->dtype;
  if constexpr (F::kIntegers) {
    dispatch_any(dtype, run);
  } else {
    dispatch_floating(dtype, run);
  }
}

}  // namespace fsdptrain::kernels
