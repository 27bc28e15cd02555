#include <string>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/process_group.h"
#include "comm/world.h"
#include "tests/support/rank_backends.h"

namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;
using testing::Backend;

}  // namespace

TEST_SUITE("comm/gloo_link") {
  TEST_CASE("tensors of many chunks arrive whole and are combined in order") {
    for (const int num_ranks : {1, 2, 3, 4}) {
      CAPTURE(num_ranks);
      run_ranks(testing::thread_ranks(Backend::Gloo, num_ranks), [&](World& world) {
        ProcessGroup& group = world.group();
        // No whole number of chunks.
        const std::int64_t numel = (std::int64_t{5} << 18) + 77;
        const Tensor input = Tensor::empty({numel * num_ranks}, DType::Float32);
        for (std::int64_t i = 0; i < input.numel(); ++i) {
          input.mutable_values<float>()[static_cast<std::size_t>(i)] =
              static_cast<float>((i * 31 + world.rank()) % 4099);
        }
        const Tensor part = Tensor::empty({numel}, DType::Float32);
        group.issue(reduce_scatter(part, input)).wait();
        bool all_right = true;
        for (std::int64_t i = 0; i < numel; ++i) {
          float sum = 0;
          for (int rank = 0; rank < num_ranks; ++rank) {
            sum += static_cast<float>(((i + numel * world.rank()) * 31 + rank) % 4099);
          }
          all_right = all_right && part.values<float>()[static_cast<std::size_t>(i)] == sum;
        }
        CHECK(all_right);
      });
    }
  }
}

}  // namespace fsdptrain::comm
