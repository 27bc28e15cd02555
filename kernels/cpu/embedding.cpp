#include "kernels/cpu/embedding.h"

#include "kernels/cpu/indices.h"
#include "kernels/cpu/lanes.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Counting sort: `positions` in order of their index, ascending within one; those of index r are
// [starts[r], starts[r + 1]).
template <class Index>
FSDPTRAIN_HOST_DEVICE void sort_positions(std::int64_t* positions, std::int64_t* starts,
                                          const Index* indices, const EmbeddingShape& shape) {
  for (std::int64_t row = 0; row <= shape.rows; ++row) {
    starts[row] = 0;
  }
  for (std::int64_t position = 0; position < shape.positions; ++position) {
    ++starts[indices[position]];
  }
  // The ends of each index, which the loop below walks back to its starts.
  std::int64_t end = 0;
  for (std::int64_t row = 0; row <= shape.rows; ++row) {
    end += starts[row];
    starts[row] = end;
  }
  for (std::int64_t position = shape.positions - 1; position >= 0; --position) {
    positions[--starts[indices[position]]] = position;
  }
}

// One tile of a row of the gradient: the sum of dy's rows at positions [begin, end).
template <class To, class T>
FSDPTRAIN_HOST_DEVICE void write_row(To* to, const T* dy, const std::int64_t* begin,
                                     const std::int64_t* end, std::int64_t stride,
                                     std::int64_t width, bool accumulate) {
  using V = OpMath<To>;
  V sums[kColumnTile];
  for (std::int64_t i = 0; i < width; ++i) {
    sums[i] = V(0);
  }
  for (const std::int64_t* position = begin; position < end; ++position) {
    const T* from = dy + *position * stride;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      sums[i] += static_cast<V>(load(from[i]));
    }
  }
  if (accumulate) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      to[i] = Store<To>::to(load(to[i]) + sums[i]);
    }
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      to[i] = Store<To>::to(sums[i]);
    }
  }
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::embedding<kIsa>(const Launch& launch, const View& out, const View& table,
                          const View& indices, const EmbeddingShape& shape) {
  dispatch_floating(table.dtype, [&]<class T>() {
    dispatch_indices(indices, [&](const auto* index) {
      parallel_units(launch, shape.positions, shape.width, [&](std::int64_t position) {
        const T* from = static_cast<const T*>(table.data) + index[position] * shape.width;
        T* to = static_cast<T*>(out.data) + position * shape.width;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < shape.width; ++i) {
          to[i] = from[i];
        }
      });
    });
  });
}

template <>
void cpu::embedding_backward<kIsa>(const Launch& launch, const View& dtable, const View& dy,
                                   const View& indices, const EmbeddingShape& shape,
                                   bool accumulate, void* order) {
  std::int64_t* positions = static_cast<std::int64_t*>(order);
  std::int64_t* starts = positions + shape.positions;
  dispatch_indices(indices,
                   [&](const auto* index) { sort_positions(positions, starts, index, shape); });
  dispatch_floating(dtable.dtype, [&]<class To>() {
    dispatch_floating(dy.dtype, [&]<class T>() {
      parallel_units(launch, shape.rows, shape.width, [&](std::int64_t row) {
        const std::int64_t* begin = positions + starts[row];
        const std::int64_t* end = positions + starts[row + 1];
        if (begin == end && accumulate) {
          return;
        }
        for (std::int64_t column = 0; column < shape.width; column += kColumnTile) {
          write_row(static_cast<To*>(dtable.data) + row * shape.width + column,
                    static_cast<const T*>(dy.data) + column, begin, end, shape.width,
                    min(kColumnTile, shape.width - column), accumulate);
        }
      });
    });
  });
}

}  // namespace fsdptrain::kernels
