#pragma once

#include <cstdint>

namespace fsdptrain::kernels::cpu {

// Elements per task of the flat kernels, and the unit of their sums.
inline constexpr std::int64_t kOptimizerBlock = 32768;

[[gnu::always_inline]] inline std::int64_t optimizer_blocks(std::int64_t count) {
  return (count + kOptimizerBlock - 1) / kOptimizerBlock;
}

}  // namespace fsdptrain::kernels::cpu
