#pragma once

#include <cstdint>

namespace fsdptrain::fakecuda {

// The order in which the blocks of a grid, and the threads of a block, run: a function of the seed
// of the session. Each of [0, count) comes once.
class ThreadOrder {
 public:
  // Seed 0: first to last; 1: last to first; others: shuffled, each `launch` in another way.
  ThreadOrder(std::uint64_t seed, std::uint64_t launch, std::int64_t count);

  std::int64_t at(std::int64_t step) const { return (first_ + step * stride_) % count_; }

 private:
  std::int64_t count_;
  std::int64_t first_ = 0;
  // Has no divisor in common with count_, and a product with it that fits.
  std::int64_t stride_ = 1;
};

}  // namespace fsdptrain::fakecuda
