#include "kernels/cpu/fma_peak.h"

#include "kernels/cpu/pack.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// More than the latency of fma times the units that run it, and few enough for 16 registers.
inline constexpr int kChains = 12;

FSDPTRAIN_HOST_DEVICE float fma_chains(std::int64_t iterations) {
  constexpr int kWidth = kPackLanes<float>;
  // Sums of terms that alternate in sign: no infinities and no subnormal numbers, which are slow.
  float terms[2][kWidth];
  for (int lane = 0; lane < kWidth; ++lane) {
    terms[0][lane] = 1.0f;
    terms[1][lane] = -1.0f;
  }
  // No two chains alike, or the compiler would join them.
  float lanes[kChains * kWidth];
  for (int i = 0; i < kChains * kWidth; ++i) {
    lanes[i] = static_cast<float>(i);
  }
  Pack<float> sums[kChains];
#pragma GCC unroll 16
  for (int chain = 0; chain < kChains; ++chain) {
    sums[chain] = load_pack(lanes + chain * kWidth);
  }
  for (std::int64_t i = 0; i < iterations; ++i) {
    const Pack<float> term = load_pack(terms[i % 2]);
#pragma GCC unroll 16
    for (int chain = 0; chain < kChains; ++chain) {
      sums[chain] = add_product(sums[chain], 0.75f, term);
    }
  }
#pragma GCC unroll 16
  for (int chain = 0; chain < kChains; ++chain) {
    store_pack(lanes + chain * kWidth, sums[chain]);
  }
  float total = 0;
  for (const float lane : lanes) {
    total += lane;
  }
  return total;
}

}  // namespace FSDPTRAIN_VARIANT

template <>
std::int64_t cpu::fma_work<kIsa>(const Launch& launch, float* sums, std::int64_t tasks,
                                 std::int64_t iterations) {
  parallel_for(launch, tasks, [&](std::int64_t task) { sums[task] = fma_chains(iterations); });
  return tasks * iterations * kChains * kPackLanes<float> * 2;
}

}  // namespace fsdptrain::kernels
