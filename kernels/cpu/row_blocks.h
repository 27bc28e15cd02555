#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/reduce.h"

// Sums over the rows of dense arrays: blocks of kSumRows rows by kColumnTile columns, combined in
// a binary tree.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// out (+)= sum / divisor, in out's op-math type.
template <class To, class V>
FSDPTRAIN_HOST_DEVICE void store_sum(To* out, V sum, const SumOptions& options) {
  if constexpr (kIsInteger<To>) {
    *out = options.accumulate ? apply(Add{}, *out, sum) : sum;
  } else {
    const V mean = options.divisor == 1 ? sum : sum / static_cast<V>(options.divisor);
    const auto value = static_cast<OpMath<To>>(mean);
    *out = Store<To>::to(options.accumulate ? load(*out) + value : value);
  }
}

// out[o, i] (+)= sum over r / divisor. add(sums, row, rows, column, width) adds to sums[0, width),
// from zero, what `rows` rows from `row` on (of all outer * reduced) hold in the columns from
// `column` on. `partials` comes from
// allocate_partials() of this shape and kSumRows.
template <class V, class To, class AddRows>
FSDPTRAIN_HOST_DEVICE void sum_row_blocks(const Launch& launch, To* out, const ReduceShape& shape,
                                          const SumOptions& options, void* partials,
                                          const AddRows& add) {
  const std::int64_t blocks = max(1, ceil_div(shape.reduced, kSumRows));
  const std::int64_t tiles = ceil_div(shape.inner, kColumnTile);
  V* const block_sums = static_cast<V*>(partials);
  const std::int64_t unit_elements = min(shape.reduced, kSumRows) * min(shape.inner, kColumnTile);
  parallel_units(launch, shape.outer * blocks * tiles, unit_elements, [&](std::int64_t unit) {
    const std::int64_t column = unit % tiles * kColumnTile;
    const std::int64_t width = min(kColumnTile, shape.inner - column);
    const std::int64_t block = unit / tiles;  // of all outer * blocks
    const std::int64_t first = block % blocks * kSumRows;
    V sums[kColumnTile];
    for (std::int64_t i = 0; i < width; ++i) {
      sums[i] = V(0);
    }
    add(sums, block / blocks * shape.reduced + first, min(kSumRows, shape.reduced - first), column,
        width);
    for (std::int64_t i = 0; i < width; ++i) {
      if (blocks == 1) {
        store_sum(out + block * shape.inner + column + i, sums[i], options);
      } else {
        block_sums[block * shape.inner + column + i] = sums[i];
      }
    }
  });
  if (blocks > 1) {
    parallel_units(launch, shape.outer * tiles, blocks * kColumnTile, [&](std::int64_t unit) {
      const std::int64_t begin = unit % tiles * kColumnTile;
      const std::int64_t end = min(shape.inner, begin + kColumnTile);
      V* sums = block_sums + unit / tiles * blocks * shape.inner;
      add_tree(sums, blocks, shape.inner, begin, end);
      for (std::int64_t i = begin; i < end; ++i) {
        store_sum(out + unit / tiles * shape.inner + i, sums[i], options);
      }
    });
  }
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
