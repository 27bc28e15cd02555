#include <stdexcept>
#include <utility>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/stream.h"
#include "tests/cuda/copies.h"

namespace fsdptrain {
namespace {

using testing::counted;
using testing::counted_on_gpu;
using testing::empty_on_gpu;
using testing::gpu;
using testing::holds_counted;
using testing::on_gpu;

constexpr std::int64_t kNumel = 10000;

// Hands values on from one block to the next, by two streams in turn; `wait(to, from)` makes a
// stream wait for the other one. What the last block has got.
template <class Wait>
Tensor relay(int num_hops, Wait wait) {
  const Stream streams[] = {gpu().make_stream("even"), gpu().make_stream("odd")};
  Tensor held = counted_on_gpu(kNumel);
  streams[0].wait(gpu().compute_stream());
  for (int hop = 0; hop < num_hops; ++hop) {
    const Stream& stream = streams[hop % 2];
    const StreamGuard guard(stream);
    if (hop > 0) {
      wait(stream, streams[(hop + 1) % 2]);
    }
    const Tensor next = empty_on_gpu(kNumel);
    copy_async(next, held);
    held = next;
  }
  gpu().compute_stream().wait(streams[(num_hops + 1) % 2]);
  return held;
}

}  // namespace

TEST_SUITE("cuda/streams") {
  TEST_CASE("what a stream was given is done when the host has waited for it") {
    on_gpu([] {
      const Stream stream = gpu().make_stream("copy");
      const StreamGuard guard(stream);
      const Tensor in = counted(kNumel, 3);
      const Tensor out = pinned({kNumel}, DType::Float32, testing::kGpu);
      const Tensor on_device = empty_on_gpu(kNumel);
      copy_async(on_device, in);
      copy_async(out, on_device);
      stream.synchronize();
      CHECK(std::ranges::equal(out.values<float>(), in.values<float>()));
    });
  }

  TEST_CASE("a stream that waits for all of another one gets its results") {
    on_gpu([] {
      CHECK(holds_counted(relay(31, [](const Stream& to, const Stream& from) { to.wait(from); })));
    });
  }

  TEST_CASE("a stream that waits for an event gets what was launched before its last record") {
    on_gpu([] {
      Event handed_on(gpu().api());
      CHECK(holds_counted(relay(32, [&](const Stream& to, const Stream& from) {
        handed_on.record(from);
        to.wait(handed_on);
      })));
    });
  }

  TEST_CASE("an event that was never recorded has passed, and holds nobody up") {
    on_gpu([] {
      const Event event(gpu().api());
      CHECK(event.has_passed());
      event.synchronize();
      gpu().compute_stream().wait(event);
      gpu().compute_stream().synchronize();
    });
  }

  TEST_CASE("an event passes with its stream, and again after each record") {
    on_gpu([] {
      Event event(gpu().api());
      const Tensor out = pinned({kNumel}, DType::Float32, testing::kGpu);
      for (int round = 0; round < 3; ++round) {
        copy_async(out, counted_on_gpu(kNumel, static_cast<float>(round)));
        event.record(gpu().compute_stream());
        event.synchronize();
        CHECK(event.has_passed());
        CHECK(out.values<float>()[1] == static_cast<float>(round + 1));
      }
    });
  }

  TEST_CASE("a moved event is the same mark, and what it was moved from is nothing") {
    on_gpu([] {
      Event first(gpu().api());
      first.record(gpu().compute_stream());
      void* const handle = first.handle();
      Event second = std::move(first);
      CHECK(second.handle() == handle);
      Event third(gpu().api());
      third = std::move(second);
      CHECK(third.handle() == handle);
      third.synchronize();
    });
  }

  TEST_CASE("timed events say how long the work between them took") {
    on_gpu([] {
      Event begin(gpu().api(), Event::Kind::Timed);
      Event end(gpu().api(), Event::Kind::Timed);
      begin.record(gpu().compute_stream());
      const Tensor on_device = counted_on_gpu(kNumel);
      end.record(gpu().compute_stream());
      end.synchronize();
      CHECK(end.seconds_since(begin) >= 0);
      CHECK(end.seconds_since(begin) < 60);
      CHECK(begin.seconds_since(begin) == 0);
    });
  }

  TEST_CASE("events that only order have no time, and say so") {
    on_gpu([] {
      Event event(gpu().api());
      event.record(gpu().compute_stream());
      event.synchronize();
      CHECK_THROWS_WITH_AS(event.seconds_since(event),
                           doctest::Contains("cudaEventElapsedTime: CUDA says "
                                             "cudaErrorInvalidResourceHandle"),
                           DeviceError);
      // The failure was of that call alone.
      CHECK(holds_counted(counted_on_gpu(kNumel)));
    });
  }

  TEST_CASE("a guard makes its stream the one that is launched on, until it ends") {
    on_gpu([] {
      const Stream compute = gpu().compute_stream();
      const Stream outer = gpu().make_stream("outer");
      const Stream inner = gpu().make_stream("inner");
      const auto handle = [] { return current_context().launch(testing::kGpu).stream; };
      CHECK(handle() == compute.handle());
      try {
        const StreamGuard guard(outer);
        CHECK(handle() == outer.handle());
        {
          const StreamGuard nested(inner);
          CHECK(gpu().current_stream() == inner);
          CHECK(handle() == inner.handle());
        }
        CHECK(handle() == outer.handle());
        throw std::runtime_error("the work failed");
      } catch (const std::runtime_error&) {
        CHECK(gpu().current_stream() == compute);
      }
      CHECK(handle() == compute.handle());
    });
  }

  TEST_CASE("streams have a device, a name, and queues of their own") {
    on_gpu([] {
      const Stream gather = gpu().make_stream("gather");
      const Stream other = gpu().make_stream("gather");
      CHECK(gather.device() == testing::kGpu);
      CHECK(gather.name() == "gather");
      CHECK(gpu().compute_stream().name() == "compute");
      CHECK(gather.handle() != nullptr);
      CHECK(gather.handle() != other.handle());
      CHECK_FALSE(gather == other);
      CHECK(gather == Stream(gather));
    });
  }
}

}  // namespace fsdptrain
