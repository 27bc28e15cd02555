#include "tools/bench/comm_parts.h"

#include <doctest/doctest.h>

#include "comm/lone_world.h"
#include "comm/meta/meta_ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::tools {
namespace {

constexpr std::uint32_t kLossGroup = 3;

Tensor floats(std::int64_t numel, Device device) {
  return Tensor::zeros({numel}, DType::Float32, device);
}

}  // namespace

TEST_SUITE("tools/bench") {
  TEST_CASE(
      "bytes of a step are those of gathers by direction, reductions, the norm and the loss") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    comm::MetaRanks ranks(0, 2);
    const Tensor whole = floats(20, Device::meta());
    const Tensor part = floats(10, Device::meta());
    const auto run = [&](const comm::Operation& operation) {
      ranks.group().issue(operation).wait();
    };
    run(comm::all_gather(whole, part, {.direction = comm::Direction::Forward}));
    run(comm::all_gather(whole, part, {.group = 2, .direction = comm::Direction::Forward}));
    run(comm::all_gather(whole, part, {.direction = comm::Direction::Backward}));
    run(comm::reduce_scatter(floats(7, Device::meta()), floats(14, Device::meta()), {},
                             {.direction = comm::Direction::Backward}));
    run(comm::all_reduce(floats(4, Device::meta()), {}, {.group = 2}));
    run(comm::all_reduce(floats(2, Device::meta()), {}, {.group = kLossGroup}));
    CHECK(bytes_of_parts(ranks.traffic(), kLossGroup) == CommNumbers{80, 40, 28, 16, 8});
  }

  TEST_CASE("a read has the seconds of what was issued since the one before") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    comm::LoneWorld alone;
    CommClock clock(alone.world(), kLossGroup);
    const Tensor values = floats(1 << 16, Device::cpu());
    alone.world().group().issue(comm::all_gather(values, values)).wait();
    // Of no step.
    alone.world().control().issue(comm::all_reduce(values, {}, {.group = kLossGroup})).wait();
    const CommSeconds first = clock.read();
    CHECK(first.of[0] > 0);
    CHECK(first.of == CommNumbers{first.of[0], 0, 0, 0, 0});
    CHECK(first.waited == 0);
    alone.world().group().issue(comm::all_reduce(values, {}, {.group = kLossGroup})).wait();
    const CommSeconds second = clock.read();
    CHECK(second.of == CommNumbers{0, 0, 0, 0, second.of[4]});
    CHECK(second.of[4] > 0);
    CHECK(clock.read().of == CommNumbers{});
  }

  TEST_CASE("operations that the ring has lost are an error") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    comm::LoneWorld alone;
    CommClock clock(alone.world(), kLossGroup);
    const std::uint32_t capacity = alone.world().flight_ring().memory().capacity();
    for (std::uint32_t i = 0; i <= capacity; ++i) {
      alone.world().group().issue(comm::barrier()).wait();
    }
    CHECK_THROWS_WITH_AS(clock.read(), doctest::Contains("start the ranks with fsdptrain launch"),
                         Error);
  }
}

}  // namespace fsdptrain::tools
