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

template <class T>
FSDPTRAIN_HOST_DEVICE void rms_row_backward(T* dx, const T* dy, const T* x, const T* weight,
                                            OpMath<T> rstd, std::int64_t width) {
  using V = OpMath<T>;
  const V gn_sum = sum_lanes<V>(
      width, [=](std::int64_t i) __attribute__((always_inline)) {
        return load(dy[i]) * load(weight[i]) * (load(x[i]) * rstd);
      });
  const V gn_mean = gn_sum / static_cast<V>(width);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < width; ++i) {
    const V g = load(dy[i]) * load(weight[i]);
    dx[i] = Store<T>::to(rstd * (g - load(x[i]) * rstd * gn_mean));
  }
}

// sum = x + residual
template <class T>
FSDPTRAIN_HOST_DEVICE void add_row(T* sum, const T* x, const T* residual, std::int64_t width) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < width; ++i) {
    sum[i] = Store<T>::to(load(x[i]) + load(residual[i]));
  }
}

// dweight (+)= the sum over rows of dy * normal(row)(x).
template <class Normal>
FSDPTRAIN_HOST_DEVICE void sum_weight_gradient(const Launch& launch, const View& dweight,
                                               const View& dy, const View& x,
                                               const NormShape& shape, bool accumulate,
                                               void* partials, const Normal& normal) {
  dispatch_floating(dweight.dtype, [&]<class To>() {
    dispatch_floating(dy.dtype, [&]<class T>() {
      using V = OpMath<T>;
      const ReduceShape sums_shape{1, shape.rows, shape.width};
      sum_row_blocks<V>(
          launch, static_cast<To*>(dweight.data), sums_shape, {1, accumulate}, partials,
          [&](V* sums, std::int64_t row, std::int64_t rows, std::int64_t column,
              std::int64_t width) {
            for (std::int64_t r = row; r < row + rows; ++r) {
              const T* const g = static_cast<const T*>(dy.data) + r * shape.width + column;
              const T* const from = static_cast<const T*>(x.data) + r * shape.width + column;
              const auto normal_of = normal.template operator()<V>(r);
#pragma GCC ivdep
              for (std::int64_t i = 0; i < width; ++i) {
                sums[i] += load(g[i]) * normal_of(load(from[i]));
              }
            }
          });
    });
  });
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
        add_row(sum, x, static_cast<const T*>(in.residual.data) + row * shape.width, shape.width);
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
  sum_weight_gradient(launch, dweight, dy, saved.x, shape, accumulate, partials,
                      [&]<class V>(std::int64_t row) {
                        const V mean = static_cast<const V*>(saved.mean.data)[row];
                        const V rstd = static_cast<const V*>(saved.rstd.data)[row];
                        return [ mean, rstd ](V x) __attribute__((always_inline)) {
                          return (x - mean) * rstd;
                        };
                      });
}

template <>
void cpu::rms_norm<kIsa>(const Launch& launch, const RmsNormOut& out, const RmsNormIn& in,
                         const NormShape& shape, double eps) {
  dispatch_floating(in.x.dtype, [&]<class T>() {
    using V = OpMath<T>;
    const T* const weight = static_cast<const T*>(in.weight.data);
    parallel_units(launch, shape.rows, shape.width, [&](std::int64_t row) {
      const std::int64_t begin = row * shape.width;
      const T* x = static_cast<const T*>(in.x.data) + begin;
      if (in.has_residual) {
        T* const sum = static_cast<T*>(out.sum.data) + begin;
        add_row(sum, x, static_cast<const T*>(in.residual.data) + begin, shape.width);
        x = sum;
      }
      const V squares = sum_lanes<V>(
          shape.width, [x](std::int64_t i)
                           __attribute__((always_inline)) { return load(x[i]) * load(x[i]); });
      const V rstd = math::rsqrt(squares / static_cast<V>(shape.width) + static_cast<V>(eps));
      static_cast<V*>(out.rstd.data)[row] = rstd;
      T* const y = static_cast<T*>(out.y.data) + begin;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < shape.width; ++i) {
        y[i] = Store<T>::to(load(x[i]) * rstd * load(weight[i]));
      }
    });
  });
}

template <>
void cpu::rms_norm_backward<kIsa>(const Launch& launch, const View& dx, const View& dy,
                                  const View& weight, const RmsNormSaved& saved,
                                  const NormShape& shape) {
  dispatch_floating(dx.dtype, [&]<class T>() {
    using V = OpMath<T>;
    parallel_units(launch, shape.rows, shape.width, [&](std::int64_t row) {
      const std::int64_t begin = row * shape.width;
      rms_row_backward(static_cast<T*>(dx.data) + begin, static_cast<const T*>(dy.data) + begin,
                       static_cast<const T*>(saved.x.data) + begin,
                       static_cast<const T*>(weight.data),
                       static_cast<const V*>(saved.rstd.data)[row], shape.width);
    });
  });
}

template <>
void cpu::rms_norm_backward_weight<kIsa>(const Launch& launch, const View& dweight, const View& dy,
                                         const RmsNormSaved& saved, const NormShape& shape,
                                         bool accumulate, void* partials) {
  sum_weight_gradient(launch, dweight, dy, saved.x, shape, accumulate, partials,
                      [&]<class V>(std::int64_t row) {
                        const V rstd = static_cast<const V*>(saved.rstd.data)[row];
                        return [rstd](V x) __attribute__((always_inline)) {
                          return x * rstd;
                        };
                      });
}

}  // namespace fsdptrain::kernels
