#include "kernels/cpu/gather.h"

#include "kernels/cpu/indices.h"
#include "kernels/cpu/lanes.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Calls body(array, pick) with the offsets of an element of the array's first row and of the
// pick at the same place, for every pick in order; places are spread over the threads.
template <class Body>
FSDPTRAIN_HOST_DEVICE void for_each_pick(const Launch& launch, const GatherShape& shape,
                                         const Body& body) {
  const std::int64_t tiles = ceil_div(shape.inner, kColumnTile);
  parallel_units(launch, shape.outer * tiles, shape.picks * min(shape.inner, kColumnTile),
                 [&](std::int64_t unit) {
                   const std::int64_t outer = unit / tiles;
                   const std::int64_t begin = unit % tiles * kColumnTile;
                   const std::int64_t end = min(shape.inner, begin + kColumnTile);
                   for (std::int64_t pick = 0; pick < shape.picks; ++pick) {
                     const std::int64_t row = (outer * shape.picks + pick) * shape.inner;
                     for (std::int64_t i = begin; i < end; ++i) {
                       body(outer * shape.size * shape.inner + i, row + i);
                     }
                   }
                 });
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::gather<kIsa>(const Launch& launch, const View& out, const View& in, const View& indices,
                       const GatherShape& shape) {
  dispatch_any(in.dtype, [&]<class T>() {
    dispatch_indices(indices, [&](const auto* index) {
      const T* from = static_cast<const T*>(in.data);
      T* to = static_cast<T*>(out.data);
      for_each_pick(launch, shape, [&](std::int64_t array, std::int64_t pick) {
        to[pick] = from[array + index[pick] * shape.inner];
      });
    });
  });
}

template <>
void cpu::scatter_add<kIsa>(const Launch& launch, const View& out, const View& indices,
                            const View& in, const GatherShape& shape) {
  dispatch_floating(in.dtype, [&]<class T>() {
    dispatch_indices(indices, [&](const auto* index) {
      const T* from = static_cast<const T*>(in.data);
      T* to = static_cast<T*>(out.data);
      for_each_pick(launch, shape, [&](std::int64_t array, std::int64_t pick) {
        T& element = to[array + index[pick] * shape.inner];
        element = Store<T>::to(load(element) + load(from[pick]));
      });
    });
  });
}

}  // namespace fsdptrain::kernels
