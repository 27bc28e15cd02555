#include "kernels/fma_peak.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/functors/math.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// More than the latency of fma times the units that run it, and few enough for 16 registers.
inline constexpr int kChains = 12;

FSDPTRAIN_HOST_DEVICE float fma_chains(std::int64_t iterations) {
  using Vector = Pack<float>;
  constexpr int kWidth = kPackLanes<float>;
  Vector chains[kChains];
  // The sums tend to 1: no infinities and no subnormal numbers, which are slow.
  const float factor = 0.75f;
  Vector term;
  for (int lane = 0; lane < kWidth; ++lane) {
    term[lane] = 0.25f;
  }
  for (int chain = 0; chain < kChains; ++chain) {
    chains[chain] = term * static_cast<float>(chain);
  }
  for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int chain = 0; chain < kChains; ++chain) {
      chains[chain] = add_product(term, factor, chains[chain]);
    }
  }
  float sum = 0;
  for (int chain = 0; chain < kChains; ++chain) {
    for (int lane = 0; lane < kWidth; ++lane) {
      sum += chains[chain][lane];
    }
  }
  return sum;
}

}  // namespace FSDPTRAIN_VARIANT

template <>
std::int64_t cpu::fma_work<kIsa>(const Launch& launch, float* sums, std::int64_t tasks,
                                 std::int64_t iterations) {
  parallel_for(launch, tasks, [&](std::int64_t task) { sums[task] = fma_chains(iterations); });
  return tasks * iterations * kChains * kPackLanes<float> * 2;
}

}  // namespace fsdptrain::kernels
