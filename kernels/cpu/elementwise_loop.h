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

// Calls row(offsets, inner_begin, inner_end) for every row of the loop, in parallel blocks;
// offsets[k] is operand k's first element of the row.
template <int operands, class Row>
FSDPTRAIN_HOST_DEVICE void for_each_row(const Launch& launch, const StridedLoop<operands>& loop,
                                        const Row& row) {
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
      row(offsets, inner_begin, inner_end);
    }
  });
}

template <class T, class F, class... In, std::size_t... k>
FSDPTRAIN_HOST_DEVICE void map_typed(const Launch& launch, F f, std::index_sequence<k...>,
                                     const View& out, const In&... in) {
  using Out = typename F::template Out<T>;
  const auto loop = make_loop<sizeof...(In) + 1>({&out, &in...});
  bool dense = true;
  for (const std::int64_t stride : loop.inner_strides) {
    dense = dense && stride == 1;
  }
  const void* const data[] = {in.data...};
  for_each_row(
      launch, loop, [&](const std::int64_t* offsets, std::int64_t begin, std::int64_t end) {
        Out* result = static_cast<Out*>(out.data) + offsets[0];
        // Inlined, or the loops would read `result` through the closure and not vectorise.
        const auto body = [&](const auto*... row) __attribute__((always_inline)) {
          if (dense) {
#pragma GCC ivdep
            for (std::int64_t i = begin; i < end; ++i) {
              result[i] = Store<Out>::to(apply(f, load(row[i])...));
            }
          } else {
#pragma GCC ivdep
            for (std::int64_t i = begin; i < end; ++i) {
              result[i * loop.inner_strides[0]] =
                  Store<Out>::to(apply(f, load(row[i * loop.inner_strides[k + 1]])...));
            }
          }
        };
        body((static_cast<const typename F::template In<T, k>*>(data[k]) + offsets[k + 1])...);
      });
}

}  // namespace FSDPTRAIN_VARIANT

template <Isa isa, class F, class... In>
void cpu::map(const Launch& launch, F f, const View& out, const In&... in) {
  // Conditions come first: the last input has the dtype that the formula computes in.
  const View* const views[] = {&in...};
  const auto run = [&]<class T>() {
    map_typed<T>(launch, f, std::index_sequence_for<In...>{}, out, in...);
  };
  const DType dtype = views[sizeof...(In) - 1]->dtype;
  if constexpr (F::kIntegers) {
    dispatch_any(dtype, run);
  } else {
    dispatch_floating(dtype, run);
  }
}

}  // namespace fsdptrain::kernels
