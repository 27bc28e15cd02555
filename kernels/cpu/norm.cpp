#include "kernels/cpu/norm.h"

#include "kernels/cpu/row_blocks.h"
#include "kernels/functors/welford.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Elements of a row whose mean and deviations are taken in two passes.
inline constexpr std::int64_t kNormBlock = 1024;

template <class T>
FSDPTRAIN_HOST_DEVICE Welford<OpMath<T>> block_statistics(const T* x, std::int64_t count) {
  using V = OpMath<T>;
  const V sum = sum_lanes<V>(
      count, [x](std::int64_t i) __attribute__((always_inline)) { return load(x[i]); });
  const V mean = sum / static_cast<V>(count);
  const V m2 = sum_lanes<V>(
      count, [ x, mean ](std::int64_t i) __attribute__((always_inline)) {
        const V deviation = load(x[i]) - mean;
        return deviation * deviation;
      });
  return {static_cast<V>(count), mean, m2};
}

template <class T>
FSDPTRAIN_HOST_DEVICE Welford<OpMath<T>> row_statistics(const T* x, std::int64_t width) {
  Welford<OpMath<T>> statistics;
  for (std::int64_t begin = 0; begin < width; begin += kNormBlock) {
    statistics = combine(statistics, block_statistics(x + begin, min(kNormBlock, width - begin)));
  }
  return statistics;
}

template <class T>
FSDPTRAIN_HOST_DEVICE void normalize_row_backward(T* dx, const T* dy, const T* x, const T* weight,
                                                  OpMath<T> mean, OpMath<T> rstd,
                                                  std::int64_t width) {
  using V = OpMath<T>;
  const V g_sum = sum_lanes<V>(
      width, [=](std::int64_t i)
                 __attribute__((always_inline)) { return load(dy[i]) * load(weight[i]); });
  const V gn_sum = sum_lanes<V>(
      width, [=](std::int64_t i) __attribute__((always_inline)) {
        return load(dy[i]) * load(weight[i]) * ((load(x[i]) - mean) * rstd);
      });
  const V g_mean = g_sum / static_cast<V>(width);
  const V gn_mean = gn_sum / static_cast<V>(width);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < width; ++i) {
    const V g = load(dy[i]) * load(weight[i]);
    const V n = (load(x[i]) - mean) * rstd;
    dx[i] = Store<T>::to(rstd * (g - g_mean - n * gn_mean));
  }
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::layer_norm<kIsa>(const Launch& launch, const LayerNormOut& out, const LayerNormIn& in,
                           const NormShape& shape, double eps) {
  dispatch_floating(in.x.dtype, [&]<class T>() {
    using V = OpMath<T>;
    const T* weight = static_cast<const T*>(in.weight.data);
    const T* bias = static_cast<const T*>(in.bias.data);
    parallel_units(launch, shape.rows, shape.width, [&](std::int64_t row) {
      const T* x = static_cast<const T*>(in.x.data) + row * shape.width;
      if (in.has_residual) {
        T* const sum = static_cast<T*>(out.sum.data) + row * shape.width;
        const T* const residual = static_cast<const T*>(in.residual.data) + row * shape.width;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < shape.width; ++i) {
          sum[i] = Store<T>::to(load(x[i]) + load(residual[i]));
        }
        x = sum;
      }
      T* y = static_cast<T*>(out.y.data) + row * shape.width;
      const Welford<V> statistics = row_statistics(x, shape.width);
      const V mean = statistics.mean;
      const V rstd = math::rsqrt(statistics.m2 / statistics.count + static_cast<V>(eps));
      static_cast<V*>(out.mean.data)[row] = mean;
      static_cast<V*>(out.rstd.data)[row] = rstd;
      if (in.has_bias) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < shape.width; ++i) {
          const V n = (load(x[i]) - mean) * rstd;
          y[i] = Store<T>::to(math::fma(n, load(weight[i]), load(bias[i])));
        }
      } else {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < shape.width; ++i) {
          y[i] = Store<T>::to((load(x[i]) - mean) * rstd * load(weight[i]));
        }
      }
    });
  });
}

template <>
void cpu::layer_norm_backward<kIsa>(const Launch& launch, const View& dx, const View& dy,
                                    const View& weight, const LayerNormSaved& saved,
                                    const NormShape& shape) {
  dispatch_floating(dx.dtype, [&]<class T>() {
    using V = OpMath<T>;
    parallel_units(launch, shape.rows, shape.width, [&](std::int64_t row) {
      const std::int64_t begin = row * shape.width;
      normalize_row_backward(
          static_cast<T*>(dx.data) + begin, static_cast<const T*>(dy.data) + begin,
          static_cast<const T*>(saved.x.data) + begin, static_cast<const T*>(weight.data),
          static_cast<const V*>(saved.mean.data)[row], static_cast<const V*>(saved.rstd.data)[row],
          shape.width);
    });
  });
}

template <>
void cpu::layer_norm_backward_weight<kIsa>(const Launch& launch, const View& dweight,
                                           const View& dy, const LayerNormSaved& saved,
                                           const NormShape& shape, bool accumulate,
                                           void* partials) {
  dispatch_floating(dweight.dtype, [&]<class To>() {
    dispatch_floating(dy.dtype, [&]<class T>() {
      using V = OpMath<T>;
      const ReduceShape sums_shape{1, shape.rows, shape.width};
      sum_row_blocks<V>(
          launch, static_cast<To*>(dweight.data), sums_shape, {1, accumulate}, partials,
          [&](V* sums, std::int64_t row, std::int64_t rows, std::int64_t column,
              std::int64_t width) {
            for (std::int64_t r = row; r < row + rows; ++r) {
              const T* g = static_cast<const T*>(dy.data) + r * shape.width + column;
              const T* x = static_cast<const T*>(saved.x.data) + r * shape.width + column;
              const V mean = static_cast<const V*>(saved.mean.data)[r];
              const V rstd = static_cast<const V*>(saved.rstd.data)[r];
#pragma GCC ivdep
              for (std::int64_t i = 0; i < width; ++i) {
                sums[i] += load(g[i]) * ((load(x[i]) - mean) * rstd);
              }
            }
          });
    });
  });
}

}  // namespace fsdptrain::kernels
