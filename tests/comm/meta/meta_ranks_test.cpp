#include "comm/meta/meta_ranks.h"

#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm {
namespace {

Tensor floats(std::int64_t numel) {
  return Tensor::empty({numel}, DType::Float32, Device::meta());
}

// Elements of a tensor, from `begin` on.
Tensor part_of(const Tensor& whole, std::int64_t begin, std::int64_t numel) {
  return whole.alias({numel}, Strides::contiguous({numel}), begin);
}

// What one operation moves on a rank of four.
Traffic traffic_of(int rank, const Operation& operation) {
  MetaRanks ranks(rank, 4);
  ranks.group().issue(operation).wait();
  CHECK(ranks.traffic().by_use.size() == 1);
  return ranks.traffic().total();
}

const MemoryCounters& counters() {
  return current_context().allocator(Device::meta()).counters();
}

}  // namespace

TEST_SUITE("comm/meta") {
  TEST_CASE("each operation moves what the others need of this rank, and it of them") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    const Tensor whole = floats(400);
    const Tensor part = floats(100);
    CHECK(traffic_of(2, all_gather(whole, part)) == Traffic{1, 1200, 1200});
    CHECK(traffic_of(2, reduce_scatter(part, whole)) == Traffic{1, 1200, 1200});
    CHECK(traffic_of(0, broadcast(part, 0)) == Traffic{1, 1200, 0});
    CHECK(traffic_of(1, broadcast(part, 0)) == Traffic{1, 0, 400});
    CHECK(traffic_of(0, reduce(part, 0)) == Traffic{1, 0, 1200});
    CHECK(traffic_of(3, reduce(part, 0)) == Traffic{1, 400, 0});
    CHECK(traffic_of(0, gather(whole, part, 0)) == Traffic{1, 0, 1200});
    CHECK(traffic_of(2, gather({}, part, 0)) == Traffic{1, 400, 0});
    CHECK(traffic_of(0, scatter(part, whole, 0)) == Traffic{1, 1200, 0});
    CHECK(traffic_of(1, scatter(part, {}, 0)) == Traffic{1, 0, 400});
    CHECK(traffic_of(1, all_to_all(floats(400), whole)) == Traffic{1, 1200, 1200});
    CHECK(traffic_of(1, send(part, 3)) == Traffic{1, 400, 0});
    CHECK(traffic_of(3, recv(part, 1)) == Traffic{1, 0, 400});
    CHECK(traffic_of(3, barrier()) == Traffic{1, 0, 0});
    // A sum over equal parts, then a gather of them: three quarters each, there and back.
    CHECK(traffic_of(1, all_reduce(floats(1024))) == Traffic{1, 6144, 6144});
    CHECK(traffic_of(3, all_gatherv(whole, floats(10), {200, 100, 90, 10})) ==
          Traffic{1, 120, 1560});
  }

  TEST_CASE("traffic is by operation, process group, group of parameters and direction") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    MetaRanks ranks(5, 8);
    const auto pair = ranks.new_group({7, 5}, "pair");
    CHECK(pair->rank() == 1);
    CHECK(ranks.traffic().by_use.empty());
    const Tensor part = floats(10);
    const Tag tag{.root = 1, .group = 3, .direction = Direction::Forward};
    for (std::uint32_t invocation = 0; invocation < 3; ++invocation) {
      Tag of_invocation = tag;
      of_invocation.invocation = invocation;
      ranks.group().issue(all_gather(floats(80), part, of_invocation)).wait();
    }
    ranks.group().issue(all_gather(floats(80), part, {.root = 1, .group = 4})).wait();
    pair->batch({all_gather(floats(20), part, tag), all_reduce(part)}).wait();
    const auto& by_use = ranks.traffic().by_use;
    CHECK(by_use.size() == 4);
    CHECK(by_use.at({Op::AllGather, "world", 1, 3, Direction::Forward}) == Traffic{3, 840, 840});
    CHECK(by_use.at({Op::AllGather, "world", 1, 4}) == Traffic{1, 280, 280});
    CHECK(by_use.at({Op::AllGather, "pair", 1, 3, Direction::Forward}) == Traffic{1, 40, 40});
    CHECK(ranks.traffic().of(Op::AllGather) == Traffic{5, 1160, 1160});
    CHECK(ranks.traffic().of(Op::ReduceScatter) == Traffic{});
    CHECK(ranks.traffic().total().calls == 6);
    ranks.reset_traffic();
    CHECK(ranks.traffic().by_use.empty());
  }

  TEST_CASE("on the CPU memory begins as zeros and operations leave it as it is") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    // What a rank has written before comes back as zeros, too.
    for (int round = 0; round < 2; ++round) {
      PhantomRanks ranks(1, 2, Device::cpu());
      CHECK(ranks.group().device() == Device::cpu());
      Tensor whole = ranks.group().allocate({4}, DType::Float32);
      whole.set_item(2, 3);
      whole.set_item(3, 4);
      const Tensor own = part_of(whole, 2, 2);
      ranks.group().issue(all_gather(whole, own)).wait();
      CHECK(whole.to_vector() == std::vector<double>{0, 0, 3, 4});
      ranks.group().issue(reduce_scatter(own, whole)).wait();
      ranks.group().issue(all_reduce(whole)).wait();
      CHECK(whole.to_vector() == std::vector<double>{0, 0, 3, 4});
      CHECK(ranks.traffic().of(Op::AllGather) == Traffic{1, 8, 8});
      whole.set_item(0, 7);
    }
    CHECK_THROWS_AS(PhantomRanks(0, 2, Device::cuda(0)), DeviceError);
  }

  TEST_CASE("operations are checked as those of ranks that exist") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    MetaRanks ranks(2, 4);
    const Tensor whole = floats(400);
    ranks.group().issue(all_gather(whole, part_of(whole, 200, 100))).wait();
    ranks.group().issue(reduce_scatter(part_of(whole, 200, 100), whole)).wait();
    const auto refuses = [&](const Operation& operation, const char* text) {
      CHECK_THROWS_WITH(static_cast<void>(ranks.group().issue(operation)), doctest::Contains(text));
    };
    refuses(all_gather(whole, part_of(whole, 100, 100)),
            "the part of this rank overlaps the whole, but not at element 200 where it belongs");
    refuses(all_gather(floats(401), floats(100)), "need 400 in all, got 401");
    refuses(all_reduce(Tensor::empty({4}, DType::Float32)), "must be on meta");
    refuses(all_to_all(part_of(whole, 0, 200), part_of(whole, 196, 200)), "overlap");
    refuses(broadcast(whole, 4), "must be a rank of the group, 0 to 3, got 4");
    const Tensor released = floats(4);
    released.storage()->release();
    refuses(all_to_all(released, floats(4)), "is released");
    CHECK(ranks.traffic().total().calls == 2);
  }

  TEST_CASE("memory is counted as that of ranks that exist, in whole size classes") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    MetaRanks ranks(0, 2);
    {
      const Tensor tensor = ranks.group().allocate({250}, DType::Float32);
      const Tensor window = ranks.group().allocate_symmetric({100, 3}, DType::BFloat16);
      CHECK(tensor.device() == Device::meta());
      CHECK(counters().live_of(MemoryCategory::Communication) == 1024 + 640);
      CHECK(counters().live_total == 1024 + 640);
    }
    CHECK(counters().live_total == 0);
  }

  TEST_CASE("a Work that is dropped and a world that was ended are errors of the next call") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    const Tensor tensor = floats(8);
    {
      MetaRanks ranks(1, 2);
      { const Work dropped = ranks.group().issue(all_reduce(tensor)); }
      CHECK_THROWS_WITH_AS(ranks.group().issue(all_reduce(tensor)).wait(),
                           doctest::Contains("dropped without a wait"), MisuseError);
    }
    MetaRanks ranks(1, 2);
    Work open = ranks.group().issue(all_reduce(tensor));
    ranks.group().abort("no more");
    CHECK_THROWS_WITH_AS(open.wait(), doctest::Contains("rank 1 failed: no more"), PeerError);
    CHECK_THROWS_AS(ranks.group().issue(all_reduce(tensor)).wait(), PeerError);
  }

  TEST_CASE("a rank and its groups are of the world, and a mesh runs over them") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    const auto refuses = [](int rank, int size, const char* text) {
      CHECK_THROWS_WITH_AS(MetaRanks(rank, size), doctest::Contains(text), ConfigError);
    };
    refuses(4, 4, "rank 4 is none of the 4 ranks 0 to 3");
    refuses(-1, 4, "rank -1");
    refuses(0, 0, "the number of ranks must be 1 to 1048576, got 0");
    MetaRanks ranks(700, 1024);
    CHECK(ranks.size() == 1024);
    CHECK(ranks.group().rank() == 700);
    CHECK_THROWS_WITH_AS(ranks.new_group({0, 1}, "them"), doctest::Contains("is not one of 0, 1"),
                         ConfigError);
    CHECK_THROWS_AS(ranks.new_group({700, 1024}, "far"), ConfigError);
    CHECK_THROWS_AS(ranks.new_group({700, 700}, "twice"), ConfigError);
    const DeviceMesh mesh({{"replicate", 128}, {"shard", 8}}, mesh_options(ranks));
    CHECK(mesh.group("shard").ranks() == std::vector<int>{696, 697, 698, 699, 700, 701, 702, 703});
    CHECK(mesh.group("shard").rank() == 4);
    CHECK(mesh.group("replicate").size() == 128);
  }
}

}  // namespace fsdptrain::comm
