#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"
#include "tests/fakecuda/expect.h"

// One rank that uses two devices: a block of one may be used by streams of the other.
namespace fsdptrain::testing {

TEST_SUITE("cuda/two_devices") {
  TEST_CASE("bytes go from one device to another, and the memory between them is used again") {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      CAPTURE(seed);
      fakecuda::Session session(fakecuda::checked({.seed = seed, .num_devices = 2}));
      {
        RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
        const ContextGuard bound(context);
        const Tensor host = Tensor::of({1, 2, 3, 5, 8});
        const Tensor first = to_device(host, Device::cuda(0));
        std::int64_t after_first = 0;
        for (int round = 0; round < 5; ++round) {
          const Tensor second = to_device(first, Device::cuda(1));
          CHECK(second.device() == Device::cuda(1));
          CHECK(second.to_vector() == host.to_vector());
          const std::int64_t raw =
              context.device(Device::cuda(0)).pinned().counters().raw_allocations;
          after_first = round == 0 ? raw : after_first;
          CHECK(raw == after_first);
        }
      }
      session.finish();
      fakecuda::expect_no_reports(session);
    }
  }

  TEST_CASE("a pinned block waits for the copies of both devices, whichever was first") {
    fakecuda::Session session(fakecuda::checked({.seed = 3, .num_devices = 2}));
    {
      RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
      const ContextGuard bound(context);
      const Tensor on_devices[] = {Tensor::empty({4}, DType::Float32, Device::cuda(0)),
                                   Tensor::empty({4}, DType::Float32, Device::cuda(1))};
      for (std::size_t round = 0; round < 6; ++round) {
        const Tensor host = pinned({4}, DType::Float32, Device::cuda(0));
        std::ranges::fill(host.mutable_values<float>(), static_cast<float>(round));
        copy_async(on_devices[round % 2], host);
        copy_async(on_devices[1 - round % 2], host);
      }
      CHECK(context.device(Device::cuda(0)).pinned().counters().raw_allocations == 1);
      CHECK(on_devices[0].item() == 5);
      CHECK(on_devices[1].item() == 5);
    }
    session.finish();
    fakecuda::expect_no_reports(session);
  }

  TEST_CASE(
      "a stream ends with the last that knows it, and allocators know those of their blocks") {
    fakecuda::Session session(fakecuda::checked({.seed = 0}));
    {
      RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
      const ContextGuard bound(context);
      for (int round = 0; round < 3; ++round) {
        Tensor kept;
        {
          const Stream stream = context.device(Device::cuda(0)).make_stream("short");
          const StreamGuard guard(stream);
          kept = to_device(Tensor::of({1, 2, 3}), Device::cuda(0));
          stream.synchronize();
        }
        CHECK(kept.to_vector()[2] == 3);
        kept = {};
        context.allocator(Device::cuda(0)).release_cached();
      }
    }
    session.finish();
    fakecuda::expect_no_reports(session);
  }
}

}  // namespace fsdptrain::testing
