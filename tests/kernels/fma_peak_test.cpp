#include "kernels/fma_peak.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"

namespace fsdptrain::kernels {

TEST_SUITE("kernels/fma_peak") {
  TEST_CASE("the work is counted, and its sums are finite, in every variant") {
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      RankContext context({.threads = 2, .isa = isa, .log_prefix = {}});
      const ContextGuard bound(context);
      const auto work = [&](std::int64_t iterations) {
        std::vector<float> sums(3, std::nanf(""));
        const std::int64_t operations =
            fma_work(context.launch(Device::cpu()), sums.data(), 3, iterations);
        for (const float sum : sums) {
          CHECK(std::isfinite(sum));
          CHECK(sum == sums[0]);
        }
        return operations;
      };
      CHECK(work(0) == 0);
      const std::int64_t one_round = work(1);
      // A vector of 16, 32 or 64 bytes at least, two operations to a multiply-add, three tasks.
      CHECK(one_round % (3 * 2 * (4 << static_cast<int>(isa))) == 0);
      CHECK(one_round > 0);
      CHECK(work(1001) == 1001 * one_round);
    }
  }
}

}  // namespace fsdptrain::kernels
