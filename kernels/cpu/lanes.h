#pragma once

#include "kernels/cpu/parallel.h"
#include "kernels/functors/arithmetic.h"

// Reductions in a fixed order: elements go to fixed lanes and lanes, like blocks, are combined in
// a fixed tree, so that loops vectorise and bits do not depend on the variant's vector width or
// the number of threads.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

inline constexpr int kLanes = 16;
// Elements that one task should cover at least, to hide what it costs to start it.
inline constexpr std::int64_t kTaskElements = 16384;
// Columns that one unit of a column reduction covers.
inline constexpr std::int64_t kColumnTile = 512;

// Folds value(i) over [0, count) with apply(F, a, b), from `initial` in every lane. `value` is
// called in two places: it must be always_inline.
template <class V, class F, class Value>
FSDPTRAIN_HOST_DEVICE V fold_lanes(F fold, V initial, std::int64_t count, const Value& value) {
  V lanes[kLanes];
  for (V& lane : lanes) {
    lane = initial;
  }
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = apply(fold, lanes[lane], value(i + lane));
    }
  }
  for (int lane = 0; i + lane < count; ++lane) {
    lanes[lane] = apply(fold, lanes[lane], value(i + lane));
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      lanes[lane] = apply(fold, lanes[lane], lanes[lane + half]);
    }
  }
  return lanes[0];
}

template <class V, class Value>
FSDPTRAIN_HOST_DEVICE V sum_lanes(std::int64_t count, const Value& value) {
  return fold_lanes<V>(Add{}, V(0), count, value);
}

// Adds rows [1, blocks) of `partials` [blocks, width] to row 0, columns [begin, end), in a binary
// tree.
template <class V>
FSDPTRAIN_HOST_DEVICE void add_tree(V* partials, std::int64_t blocks, std::int64_t width,
                                    std::int64_t begin, std::int64_t end) {
  for (std::int64_t step = 1; step < blocks; step *= 2) {
    for (std::int64_t block = 0; block + step < blocks; block += 2 * step) {
      V* to = partials + block * width;
      const V* from = partials + (block + step) * width;
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        to[i] = apply(Add{}, to[i], from[i]);
      }
    }
  }
}

// Calls body(unit) for every unit in [0, units), several of `unit_elements` to a task.
template <class Body>
FSDPTRAIN_HOST_DEVICE void parallel_units(const Launch& launch, std::int64_t units,
                                          std::int64_t unit_elements, const Body& body) {
  const std::int64_t group = max(1, kTaskElements / max(1, unit_elements));
  parallel_blocks(launch, units, group, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      body(unit);
    }
  });
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
