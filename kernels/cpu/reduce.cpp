#include "kernels/cpu/reduce.h"

#include "kernels/cpu/row_blocks.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// sums[i] += sum over `rows` rows of in[row, i], i in [0, width)
template <class T, class V>
FSDPTRAIN_HOST_DEVICE void add_rows(V* sums, const T* in, std::int64_t rows, std::int64_t stride,
                                    std::int64_t width) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const T* a = in + row * stride;
    const T* b = a + stride;
    const T* c = b + stride;
    const T* d = c + stride;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      const V ab = apply(Add{}, V(load(a[i])), V(load(b[i])));
      const V cd = apply(Add{}, V(load(c[i])), V(load(d[i])));
      sums[i] = apply(Add{}, sums[i], apply(Add{}, ab, cd));
    }
  }
  for (; row < rows; ++row) {
    const T* a = in + row * stride;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      sums[i] = apply(Add{}, sums[i], V(load(a[i])));
    }
  }
}

// Sums of rows that lie dense in memory.
template <class To, class T>
FSDPTRAIN_HOST_DEVICE void sum_dense_rows(const Launch& launch, To* out, const T* in,
                                          const ReduceShape& shape, const SumOptions& options,
                                          void* workspace) {
  using V = OpMath<T>;
  const std::int64_t blocks = max(1, ceil_div(shape.reduced, kSumBlock));
  V* partials = static_cast<V*>(workspace);
  parallel_units(
      launch, shape.outer * blocks, min(shape.reduced, kSumBlock), [&](std::int64_t unit) {
        const std::int64_t begin = unit % blocks * kSumBlock;
        const T* x = in + unit / blocks * shape.reduced + begin;
        const V sum = sum_lanes<V>(
            min(kSumBlock, shape.reduced - begin), [x](std::int64_t i) __attribute__((
                                                       always_inline)) { return load(x[i]); });
        if (blocks == 1) {
          store_sum(out + unit, sum, options);
        } else {
          partials[unit] = sum;
        }
      });
  if (blocks > 1) {
    parallel_units(launch, shape.outer, blocks, [&](std::int64_t row) {
      add_tree(partials + row * blocks, blocks, 1, 0, 1);
      store_sum(out + row, partials[row * blocks], options);
    });
  }
}

// Sums over rows of several columns.
template <class To, class T>
FSDPTRAIN_HOST_DEVICE void sum_columns(const Launch& launch, To* out, const T* in,
                                       const ReduceShape& shape, const SumOptions& options,
                                       void* partials) {
  using V = OpMath<T>;
  sum_row_blocks<V>(
      launch, out, shape, options, partials,
      [&](V* sums, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t width) {
        add_rows(sums, in + row * shape.inner + column, rows, shape.inner, width);
      });
}

template <class To, class T>
FSDPTRAIN_HOST_DEVICE void sum_typed(const Launch& launch, const View& out, const View& in,
                                     const ReduceShape& shape, const SumOptions& options,
                                     void* partials) {
  To* to = static_cast<To*>(out.data);
  const T* from = static_cast<const T*>(in.data);
  if (shape.inner == 1) {
    sum_dense_rows(launch, to, from, shape, options, partials);
  } else {
    sum_columns(launch, to, from, shape, options, partials);
  }
}

// Whether x takes the place of `best` as the first maximum.
template <class T>
FSDPTRAIN_HOST_DEVICE bool replaces(T x, T best) {
  return x > best || (x != x && best == best);
}

// Calls body(outer, first column, width) for every tile of the results.
template <class Body>
FSDPTRAIN_HOST_DEVICE void for_each_tile(const Launch& launch, const ReduceShape& shape,
                                         const Body& body) {
  const std::int64_t tiles = ceil_div(shape.inner, kColumnTile);
  parallel_units(launch, shape.outer * tiles, shape.reduced * min(shape.inner, kColumnTile),
                 [&](std::int64_t unit) {
                   const std::int64_t column = unit % tiles * kColumnTile;
                   body(unit / tiles, column, min(kColumnTile, shape.inner - column));
                 });
}

// best[i] = the largest of in[row, i] over `rows` rows
template <class T, class V>
FSDPTRAIN_HOST_DEVICE void max_rows(V* best, const T* in, std::int64_t rows, std::int64_t stride,
                                    std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) {
    best[i] = load(in[i]);
  }
  for (std::int64_t row = 1; row < rows; ++row) {
    const T* x = in + row * stride;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      best[i] = apply(Maximum{}, best[i], load(x[i]));
    }
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE OpMath<T> max_dense(const T* x, std::int64_t count) {
  return fold_lanes<OpMath<T>>(
      Maximum{}, load(x[0]),
      count, [x](std::int64_t i) __attribute__((always_inline)) { return load(x[i]); });
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::sum<kIsa>(const Launch& launch, const View& out, const View& in, const ReduceShape& shape,
                    const SumOptions& options, void* partials) {
  dispatch_any(in.dtype, [&]<class T>() {
    if constexpr (kIsInteger<T>) {
      sum_typed<T, T>(launch, out, in, shape, options, partials);
    } else {
      dispatch_floating(out.dtype, [&]<class To>() {
        sum_typed<To, T>(launch, out, in, shape, options, partials);
      });
    }
  });
}

template <>
void cpu::max<kIsa>(const Launch& launch, const View& out, const View& in,
                    const ReduceShape& shape) {
  dispatch_any(in.dtype, [&]<class T>() {
    using V = OpMath<T>;
    for_each_tile(launch, shape, [&](std::int64_t outer, std::int64_t column, std::int64_t width) {
      const T* x = static_cast<const T*>(in.data) + outer * shape.reduced * shape.inner + column;
      T* y = static_cast<T*>(out.data) + outer * shape.inner + column;
      if (shape.inner == 1) {
        *y = Store<T>::to(max_dense(x, shape.reduced));
        return;
      }
      V best[kColumnTile];
      max_rows(best, x, shape.reduced, shape.inner, width);
      for (std::int64_t i = 0; i < width; ++i) {
        y[i] = Store<T>::to(best[i]);
      }
    });
  });
}

template <>
void cpu::argmax<kIsa>(const Launch& launch, const View& out, const View& in,
                       const ReduceShape& shape) {
  dispatch_any(in.dtype, [&]<class T>() {
    using V = OpMath<T>;
    for_each_tile(launch, shape, [&](std::int64_t outer, std::int64_t column, std::int64_t width) {
      const T* x = static_cast<const T*>(in.data) + outer * shape.reduced * shape.inner + column;
      std::int64_t* y = static_cast<std::int64_t*>(out.data) + outer * shape.inner + column;
      if (shape.inner == 1) {
        const V best = max_dense(x, shape.reduced);
        std::int64_t position = 0;
        while (load(x[position]) != best && load(x[position]) == load(x[position])) {
          ++position;
        }
        *y = position;
        return;
      }
      V best[kColumnTile];
      for (std::int64_t i = 0; i < width; ++i) {
        best[i] = load(x[i]);
        y[i] = 0;
      }
      for (std::int64_t row = 1; row < shape.reduced; ++row) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < width; ++i) {
          const V value = load(x[row * shape.inner + i]);
          const bool better = replaces(value, best[i]);
          best[i] = better ? value : best[i];
          y[i] = better ? row : y[i];
        }
      }
    });
  });
}

}  // namespace fsdptrain::kernels
