#include "kernels/cpu/copy.h"

#include "kernels/cpu/elementwise_loop.h"
#include "kernels/functors/convert.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Calls fn<To, From>() for the dtypes of out and in.
template <class Fn>
FSDPTRAIN_HOST_DEVICE void dispatch_pair(const View& out, const View& in, const Fn& fn) {
  dispatch_any(out.dtype, [&]<class To>() {
    dispatch_any(in.dtype, [&]<class From>() { fn.template operator()<To, From>(); });
  });
}

// row(out, out stride, in, in stride, count) over matching rows of two views.
template <class To, class From, class Row>
FSDPTRAIN_HOST_DEVICE void for_row_pairs(const Launch& launch, const View& out, const View& in,
                                         const Row& row) {
  const auto loop = row_loop<2>({&out, &in});
  for_each_row(launch, loop,
               [&](const std::int64_t* offsets, std::int64_t begin, std::int64_t end) {
                 const std::int64_t to_stride = loop.inner_strides[0];
                 const std::int64_t from_stride = loop.inner_strides[1];
                 row(static_cast<To*>(out.data) + offsets[0] + begin * to_stride, to_stride,
                     static_cast<const From*>(in.data) + offsets[1] + begin * from_stride,
                     from_stride, end - begin);
               });
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::copy<kIsa>(const Launch& launch, const View& out, const View& in) {
  dispatch_pair(out, in, [&]<class To, class From>() {
    for_row_pairs<To, From>(launch, out, in,
                            [](To* to, std::int64_t to_stride, const From* from,
                               std::int64_t from_stride, std::int64_t count) {
                              if (to_stride == 1 && from_stride == 1) {
#pragma GCC ivdep
                                for (std::int64_t i = 0; i < count; ++i) {
                                  to[i] = convert<To>(from[i]);
                                }
                              } else {
                                for (std::int64_t i = 0; i < count; ++i) {
                                  to[i * to_stride] = convert<To>(from[i * from_stride]);
                                }
                              }
                            });
  });
}

template <>
void cpu::accumulate<kIsa>(const Launch& launch, const View& out, const View& in) {
  const auto run = [&]<class To, class From>() {
    for_row_pairs<To, From>(launch, out, in,
                            [](To* to, std::int64_t to_stride, const From* from,
                               std::int64_t from_stride, std::int64_t count) {
#pragma GCC ivdep
                              for (std::int64_t i = 0; i < count; ++i) {
                                to[i * to_stride] = add(to[i * to_stride], from[i * from_stride]);
                              }
                            });
  };
  dispatch_floating(out.dtype, [&]<class To>() {
    dispatch_floating(in.dtype, [&]<class From>() { run.template operator()<To, From>(); });
  });
}

template <>
void cpu::fill<kIsa>(const Launch& launch, const View& out, double value) {
  dispatch_any(out.dtype, [&]<class To>() {
    const To element = convert<To>(value);
    const auto loop = row_loop<1>({&out});
    for_each_row(launch, loop,
                 [&](const std::int64_t* offsets, std::int64_t begin, std::int64_t end) {
                   To* to = static_cast<To*>(out.data) + offsets[0];
                   const std::int64_t stride = loop.inner_strides[0];
                   for (std::int64_t i = begin; i < end; ++i) {
                     to[i * stride] = element;
                   }
                 });
  });
}

}  // namespace fsdptrain::kernels
