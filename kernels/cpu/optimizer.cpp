#include "kernels/cpu/optimizer.h"

#include "kernels/cpu/parallel.h"
#include "kernels/functors/math.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// update(segment, begin, end) over all segments in blocks, in one parallel region.
template <class Segment, class Update>
FSDPTRAIN_HOST_DEVICE void for_segments(const Launch& launch, const Segment* segments,
                                        std::int64_t num_segments, const Update& update) {
  std::int64_t blocks = 0;
  for (std::int64_t s = 0; s < num_segments; ++s) {
    blocks += cpu::optimizer_blocks(segments[s].end - segments[s].begin);
  }
  parallel_for(launch, blocks, [&](std::int64_t block) {
    // Segments are few and blocks large: a scan costs nothing beside a block.
    std::int64_t s = 0;
    while (block >= cpu::optimizer_blocks(segments[s].end - segments[s].begin)) {
      block -= cpu::optimizer_blocks(segments[s].end - segments[s].begin);
      ++s;
    }
    const std::int64_t begin = segments[s].begin + block * cpu::kOptimizerBlock;
    update(segments[s], begin, min(segments[s].end, begin + cpu::kOptimizerBlock));
  });
}

template <class T>
FSDPTRAIN_HOST_DEVICE void adamw_block(T* p, const T* g, T* m, T* v, std::int64_t begin,
                                       std::int64_t end, const AdamwSegment& segment,
                                       const AdamwConstants& constants, T scale) {
  const T beta1 = static_cast<T>(constants.beta1);
  const T beta2 = static_cast<T>(constants.beta2);
  const T rest1 = static_cast<T>(1 - constants.beta1);
  const T rest2 = static_cast<T>(1 - constants.beta2);
  const T eps = static_cast<T>(constants.eps);
  const T decay = static_cast<T>(segment.decay);
  const T step_size = static_cast<T>(segment.step_size);
  const T inv_correction = static_cast<T>(segment.inv_correction);
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    const T gradient = g[i] * scale;
    const T average = math::fma(beta1, m[i], rest1 * gradient);
    const T square = math::fma(beta2, v[i], rest2 * gradient * gradient);
    const T denominator = math::fma(math::sqrt(square), inv_correction, eps);
    m[i] = average;
    v[i] = square;
    p[i] = math::fma(p[i], decay, -step_size * (average / denominator));
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE void sgd_block(T* p, const T* g, T* buffer, std::int64_t begin,
                                     std::int64_t end, const SgdSegment& segment, T momentum,
                                     T scale) {
  const T lr = static_cast<T>(segment.lr);
  const T weight_decay = static_cast<T>(segment.weight_decay);
  if (buffer == nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      p[i] = math::fma(-lr, math::fma(weight_decay, p[i], g[i] * scale), p[i]);
    }
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    const T gradient = math::fma(weight_decay, p[i], g[i] * scale);
    const T next = math::fma(momentum, buffer[i], gradient);
    buffer[i] = next;
    p[i] = math::fma(-lr, next, p[i]);
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
                               static_cast<T*>(exp_avg_sq.data), begin, end, segment, constants,
                               static_cast<T>(factor));
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
                             static_cast<const T*>(gradients.data), buffer, begin, end, segment,
                             static_cast<T>(momentum_factor), static_cast<T>(factor));
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
