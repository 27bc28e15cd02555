#include "tests/fakecuda/kernels/thread_order.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/random.h"

namespace fsdptrain::fakecuda {

ThreadOrder::ThreadOrder(std::uint64_t seed, std::uint64_t launch, std::int64_t count)
    : count_(count) {
  if (seed == 0) {
    return;
  }
  if (seed == 1) {
    first_ = count - 1;
    stride_ = count > 1 ? count - 1 : 1;
    return;
  }
  const Philox bits = philox(launch, static_cast<std::uint64_t>(count), seed);
  first_ = static_cast<std::int64_t>(bits.word[0]) % count;
  stride_ = 1 + static_cast<std::int64_t>(bits.word[1]) % count;
  while (std::gcd(stride_, count) != 1) {
    ++stride_;
  }
}

}  // namespace fsdptrain::fakecuda
