#include "kernels/cpu/copy.h"

#include "kernels/cpu/elementwise_loop.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// The nearest float below or above x of which the last bit is set, or x itself if it is a float:
// a later rounding to fewer bits then sees on which side of a tie x lies.
FSDPTRAIN_HOST_DEVICE float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  auto bits = __builtin_bit_cast(std::uint32_t, nearest);
  // Inexact with an even last bit: one step towards x, whose magnitude lies above or below.
  const bool even = (bits & 1u) == 0;
  const bool away = (x > back) == (x > 0);
  const std::uint32_t step = away ? bits + 1u : bits - 1u;
  const bool inexact = x != back && !__builtin_isnan(x) && (bits & 0x7fffffffu) < 0x7f800000u;
  bits = inexact && even ? step : bits;
  return __builtin_bit_cast(float, bits);
}

template <class To, class From>
FSDPTRAIN_HOST_DEVICE To convert(From x) {
  const auto value = load(x);
  if constexpr (kIsInteger<To> && !kIsInteger<From>) {
    // The bounds as floating values: 2^n is exact, so `value < limit` implies that it fits.
    constexpr int kValueBits = static_cast<int>(sizeof(To)) * 8 - (To(-1) < To(0) ? 1 : 0);
    using V = OpMath<From>;
    const V limit = static_cast<V>(2.0) * static_cast<V>(std::uint64_t{1} << (kValueBits - 1));
    const V lowest = To(-1) < To(0) ? -limit : V(0);
    constexpr To kMax = static_cast<To>((std::uint64_t{1} << (kValueBits - 1)) - 1 +
                                        (std::uint64_t{1} << (kValueBits - 1)));
    constexpr To kMin = To(-1) < To(0) ? static_cast<To>(-kMax - 1) : To(0);
    const bool inside = value >= lowest && value < limit;
    const To clamped = value >= limit ? kMax : (value < lowest ? kMin : To(0));
    return inside ? static_cast<To>(inside ? value : V(0)) : clamped;
  } else if constexpr (sizeof(To) == 2 && !kIsInteger<To> && sizeof(value) >= 4 &&
                       !__is_same(decltype(value), const float)) {
    // To a 16-bit float by way of float: rounded once, because the first step rounds to odd.
    return Store<To>::to(round_to_odd(static_cast<double>(value)));
  } else {
    return Store<To>::to(static_cast<OpMath<To>>(value));
  }
}

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
                              using V = OpMath<To>;
#pragma GCC ivdep
                              for (std::int64_t i = 0; i < count; ++i) {
                                const V sum = load(to[i * to_stride]) +
                                              static_cast<V>(load(from[i * from_stride]));
                                to[i * to_stride] = Store<To>::to(sum);
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
