#include "tests/comm/nccl/fake_ranks.h"
#include "tests/cuda/one_rank.h"

namespace fsdptrain::testing {

void on_one_rank(std::uint64_t order, const comm::World::Options& options,
                 const std::function<void(comm::World& world)>& body) {
  FakeRanks ranks(1, order, options);
  ranks.run(body);
  ranks.expect_clean();
}

}  // namespace fsdptrain::testing
