#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/process_group.h"
#include "runtime/base/host_schedule.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"
#include "tests/comm/nccl/fake_ranks.h"

// Memory that NCCL knows: whom it counts for, and when it is freed.
namespace fsdptrain::comm {
namespace {

using fakecuda::ReportKind;
using testing::FakeRanks;
using testing::in_all_orders;
using testing::is_a;
using testing::ones;
using testing::text_of;
using testing::touch;

constexpr std::int64_t kTooMuch = std::int64_t{1} << 40;

const MemoryCounters& counters(World& world) {
  return current_context().allocator(world.device()).counters();
}

std::size_t num_reports(FakeRanks& ranks, ReportKind kind) {
  return static_cast<std::size_t>(
      std::ranges::count(ranks.session().reports(), kind, &fakecuda::Report::kind));
}

}  // namespace

TEST_SUITE("comm/nccl/memory") {
  TEST_CASE("registered memory is known to both communicators while it is there") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        const Tensor outlives = world.group().allocate({8}, DType::Float32);
        {
          const Tensor whole = world.group().allocate({200}, DType::Float32);
          const Tensor window = world.group().allocate_symmetric({100}, DType::Float32);
          touch("fill", window);
          world.group().issue(all_gather(whole, window)).wait();
          world.group().issue(barrier()).wait();
          world.finish();
          CHECK(whole.item(150) == 0);
          // Each rank's three tensors, in two communicators; others may be at another place.
          CHECK(fakecuda::nccl_use().num_registrations >= 6);
          CHECK(fakecuda::nccl_use().num_windows >= 2);
        }
      });
      ranks.expect_clean();
    });
  }

  TEST_CASE("registered memory that is dropped at once waits for the collective") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        const Tensor whole = world.group().allocate({200}, DType::Float32);
        const Tensor part = ones(world, 100);
        Work work = world.group().issue(all_gather(whole, part));
        work.wait();
      });
      ranks.expect_clean();
    });
  }

  TEST_CASE("registered memory is counted as memory of communication, while it is there") {
    FakeRanks ranks(2, 3);
    ranks.run([](World& world) {
      const MemoryCounters before = counters(world);
      const auto expect_more = [&](std::int64_t nbytes, std::int64_t num_blocks) {
        const MemoryCounters& now = counters(world);
        CHECK(now.live_of(MemoryCategory::Communication) -
                  before.live_of(MemoryCategory::Communication) ==
              nbytes);
        CHECK(now.live_total - before.live_total == nbytes);
        CHECK(now.raw_bytes - before.raw_bytes == nbytes);
        CHECK(now.raw_allocations - before.raw_allocations == num_blocks);
      };
      {
        const Tensor whole = world.group().allocate({256}, DType::Float32);
        expect_more(1024, 1);
        const Tensor window = world.group().allocate_symmetric({128}, DType::Float32);
        expect_more(1536, 2);
      }
      expect_more(0, 2);
      CHECK(counters(world).peak_of(MemoryCategory::Communication) >= 1536);
    });
    ranks.expect_clean();
  }

  TEST_CASE("registered memory that there is not is an error of that call, and the world goes on") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        const Tensor held = ones(world, 1000);
        const std::string text =
            fmt::format("bytes more of {} for communication on stream compute: ", world.device());
        CHECK_THROWS_WITH_AS(static_cast<void>(world.group().allocate({kTooMuch}, DType::Float32)),
                             doctest::Contains(text.c_str()), OutOfMemoryError);
        CHECK_THROWS_WITH_AS(static_cast<void>(world.group().allocate({kTooMuch}, DType::Float32)),
                             doctest::Contains("4096 activation"), OutOfMemoryError);
        const Tensor sum = world.group().allocate({8}, DType::Float32);
        copy_async(sum, ones(world, 8));
        world.group().issue(all_reduce(sum)).wait();
        CHECK(sum.item(5) == 2);
      });
      ranks.expect_clean();
    });
  }

  TEST_CASE("a request for registered memory takes what the allocator has in its cache") {
    std::uint64_t num_mallocs = 0;
    const auto ask = [&](fakecuda::Faults faults) {
      FakeRanks ranks(1, 0, {}, std::move(faults));
      std::int64_t raw_bytes = 0;
      ranks.run([&](World& world) {
        static_cast<void>(Tensor::empty({1 << 20}, DType::Float32, world.device()));
        num_mallocs = ranks.session().num_mallocs();
        static_cast<void>(world.group().allocate({8}, DType::Float32));
        raw_bytes = counters(world).raw_bytes;
      });
      ranks.expect_clean();
      return raw_bytes;
    };
    const std::int64_t with_cache = ask({});
    CHECK(with_cache - ask({.failing_mallocs = {num_mallocs + 1}}) >= std::int64_t{4} << 20);
  }

  TEST_CASE("a rank that has no memory for a symmetric block ends the world, and nobody waits") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      const auto errors = ranks.try_run([](World& world) {
        const auto ask = [&] {
          return world.group().allocate_symmetric({world.rank() == 1 ? kTooMuch : 8},
                                                  DType::Float32);
        };
        if (world.rank() == 1) {
          CHECK_THROWS_AS(static_cast<void>(ask()), OutOfMemoryError);
          CHECK_THROWS_AS(static_cast<void>(world.group().issue(barrier())), OutOfMemoryError);
          throw DataError("as planned");
        }
        static_cast<void>(ask());
      });
      CHECK(is_a<DataError>(errors[1]));
      CHECK(is_a<PeerError>(errors[0]));
      CHECK(text_of(errors[0]).find("rank 1 failed: allocate: there are no") != std::string::npos);
      CHECK(num_reports(ranks, ReportKind::Hang) == 0);
      ranks.ignore_rest();
    });
  }

  TEST_CASE("registered memory is freed behind every stream that used it") {
    in_all_orders([](std::uint64_t seed) {
      for (const bool says_so : {false, true}) {
        FakeRanks ranks(1, seed);
        ranks.run([&](World& world) {
          const DeviceContext& device = current_context().device(world.device());
          const Stream side = device.make_stream("side");
          const Tensor block = world.group().allocate({200}, DType::Float32);
          side.wait(device.compute_stream());
          if (says_so) {
            // An operation that knows the address, and was launched there.
            void* const address = block.view().data;
            block.storage()->note_use(side);
            CHECK(cudaMemsetAsync(address, 0, 800, static_cast<cudaStream_t>(side.handle())) ==
                  cudaSuccess);
          } else {
            const StreamGuard guard(side);
            touch("use on the side", block);
          }
        });
        ranks.expect_clean();
      }
    });
  }

  TEST_CASE("registered memory may be dropped when its world and its rank are gone") {
    FakeRanks ranks(2, 3);
    std::vector<Tensor> kept(2);
    ranks.run([&](World& world) {
      Tensor& block = kept[static_cast<std::size_t>(world.rank())];
      block = world.group().allocate({200}, DType::Float32);
      touch("fill", block);
    });
    CHECK(ranks.session().device_bytes(0) > 0);
    kept.clear();
    CHECK(ranks.session().device_bytes(0) == 0);
    ranks.expect_clean();
  }

  TEST_CASE("a block that dies with an exception waits for no operation that others do not join") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      const auto errors = ranks.try_run([](World& world) {
        if (world.rank() == 1) {
          world.control().issue(barrier()).wait();
          return;
        }
        const Tensor whole = world.group().allocate({200}, DType::Float32);
        world.group().issue(all_gather(whole, ones(world, 100))).wait();
        throw DataError("no more data");
      });
      CHECK(is_a<DataError>(errors[0]));
      CHECK(is_a<PeerError>(errors[1]));
      ranks.session().finish();
      CHECK(num_reports(ranks, ReportKind::Hang) == 0);
      CHECK(num_reports(ranks, ReportKind::FreeWhileInUse) == 0);
      CHECK(num_reports(ranks, ReportKind::Leak) == 0);
    });
  }

  TEST_CASE("a block that is dropped while another rank fails waits no longer than for that") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      bool has_issued = false;
      const auto errors = ranks.try_run([&](World& world) {
        if (world.rank() == 1) {
          current_context().schedule->wait([&] { return has_issued; });
          throw DataError("no more data");
        }
        {
          const Tensor whole = world.group().allocate({200}, DType::Float32);
          world.group().issue(all_gather(whole, ones(world, 100))).wait();
          has_issued = true;
        }
        world.finish();
      });
      CHECK(is_a<PeerError>(errors[0]));
      ranks.session().finish();
      CHECK(num_reports(ranks, ReportKind::Hang) == 0);
      CHECK(num_reports(ranks, ReportKind::FreeWhileInUse) == 0);
      CHECK(num_reports(ranks, ReportKind::Leak) == 0);
    });
  }
}

}  // namespace fsdptrain::comm
