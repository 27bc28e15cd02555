#include <chrono>
#include <vector>

#include <doctest/doctest.h>

#include "comm/process_group.h"
#include "tests/comm/nccl/fake_ranks.h"
#include "tests/comm/nccl/ticking_link.h"

// How a rank leaves a world.
namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;
using testing::ones;
using testing::TickingClock;
using testing::TickingLink;

}  // namespace

TEST_SUITE("comm/nccl/end") {
  TEST_CASE("a rank waits 5 s at its end for all of its communicators together") {
    fakecuda::Session session(fakecuda::checked({.seed = 3, .num_devices = 2}));
    ThreadBoards boards(2);
    // Of rank 0: each look at it is 0.1 s later.
    TickingClock clock(100ms);
    ThreadRanks ranks{.num_ranks = 2};
    ranks.world.device = Device::cuda(0);
    ranks.connect = [&](int rank) {
      Links links = boards.connect(rank, false);
      if (rank == 0) {
        links.training = std::make_unique<TickingLink>(std::move(links.training), clock);
      }
      return links;
    };
    Nanoseconds begin{};
    run_ranks(ranks, [&](World& world) {
      if (world.rank() == 1) {
        return;
      }
      Work gather = world.group().issue(broadcast(ones(world, 8), 0));
      Work sum = world.group().issue(all_reduce(ones(world, 8)));
      gather.wait();
      sum.wait();
      begin = clock.now();
    });
    const Nanoseconds time = clock.now() - begin;
    CHECK(time >= 5s);
    CHECK(time < 6s);
    session.finish();
    static_cast<void>(session.reports());
  }
}

}  // namespace fsdptrain::comm
