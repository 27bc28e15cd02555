#include "comm/nccl/connect.h"
#include "comm/run_ranks.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/one_rank.h"

namespace fsdptrain::testing {

void on_one_rank(std::uint64_t, const comm::World::Options& options,
                 const std::function<void(comm::World& world)>& body) {
  comm::nccl::prepare_environment();
  comm::ThreadRanks ranks{.num_ranks = 1, .world = options};
  ranks.world.device = kGpu;
  comm::run_ranks(ranks, body);
}

}  // namespace fsdptrain::testing
