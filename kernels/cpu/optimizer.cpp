#include "kernels/cpu/optimizer.h"

#include "kernels/cpu/segment_blocks.h"
#include "kernels/functors/optimizer_step.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

template <class T>
FSDPTRAIN_HOST_DEVICE void adamw_block(T* p, const T* g, T* m, T* v, std::int64_t begin,
                                       std::int64_t end, const AdamwFactors<T>& by) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    const AdamwElement<T> next = adamw_step({p[i], m[i], v[i]}, g[i], by);
    m[i] = next.average;
    v[i] = next.square;
    p[i] = next.parameter;
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE void sgd_block(T* p, const T* g, T* buffer, std::int64_t begin,
                                     std::int64_t end, const SgdFactors<T>& by) {
  if (buffer == nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      p[i] = sgd_step(p[i], decayed_gradient(p[i], g[i], by), by);
    }
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    const T next = math::fma(by.momentum, buffer[i], decayed_gradient(p[i], g[i], by));
    buffer[i] = next;
    p[i] = sgd_step(p[i], next, by);
  }
}

// Eight sums side by side, added in a fixed tree: they stay in registers, which the sixteen of
// sum_lanes() do not in double.
template <class T>
FSDPTRAIN_HOST_DEVICE double square_sum(const T* x, std::int64_t count) {
  constexpr int kSums = 8;
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int lane = 0; lane < kSums; ++lane) {
      const double value = static_cast<double>(x[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    const double value = static_cast<double>(x[i]);
    sums[lane] += value * value;
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::adamw<kIsa>(const Launch& launch, const View& parameters, const View& gradients,
                      const View& exp_avg, const View& exp_avg_sq, const AdamwSegment* segments,
                      std::int64_t num_segments, const AdamwConstants& constants,
                      const double* scale) {
  const double factor = scale == nullptr ? 1.0 : *scale;
  const auto run = [&]<class T>() {
    for_segments(launch, segments, num_segments,
                 [&](const AdamwSegment& segment, std::int64_t begin, std::int64_t end) {
                   adamw_block(static_cast<T*>(parameters.data),
                               static_cast<const T*>(gradients.data), static_cast<T*>(exp_avg.data),
                               static_cast<T*>(exp_avg_sq.data), begin, end,
                               AdamwFactors<T>(segment, constants, factor));
                 });
  };
  parameters.dtype == DType::Float64 ? run.template operator()<double>()
                                     : run.template operator()<float>();
}

template <>
void cpu::sgd<kIsa>(const Launch& launch, const View& parameters, const View& gradients,
                    const View* momentum, double momentum_factor, const SgdSegment* segments,
                    std::int64_t num_segments, const double* scale) {
  const double factor = scale == nullptr ? 1.0 : *scale;
  const auto run = [&]<class T>() {
    T* const buffer = momentum == nullptr ? nullptr : static_cast<T*>(momentum->data);
    for_segments(launch, segments, num_segments,
                 [&](const SgdSegment& segment, std::int64_t begin, std::int64_t end) {
                   sgd_block(static_cast<T*>(parameters.data),
                             static_cast<const T*>(gradients.data), buffer, begin, end,
                             SgdFactors<T>(segment, momentum_factor, factor));
                 });
  };
  parameters.dtype == DType::Float64 ? run.template operator()<double>()
                                     : run.template operator()<float>();
}

template <>
void cpu::sum_of_squares<kIsa>(const Launch& launch, double* partials, const View& x,
                               const Range& range) {
  const auto run = [&]<class T>() {
    parallel_blocks(launch, range.end - range.begin, cpu::kOptimizerBlock,
                    [&](std::int64_t begin, std::int64_t end) {
                      partials[begin / cpu::kOptimizerBlock] = square_sum(
                          static_cast<const T*>(x.data) + range.begin + begin, end - begin);
                    });
  };
  x.dtype == DType::Float64 ? run.template operator()<double>() : run.template operator()<float>();
}

}  // namespace fsdptrain::kernels
