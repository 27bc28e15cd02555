#include "runtime/base/allocator.h"

#include <vector>

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/cuda/copies.h"

namespace fsdptrain {
namespace {

using testing::counted;
using testing::counted_on_gpu;
using testing::empty_on_gpu;
using testing::gpu;
using testing::holds_counted;
using testing::kGpu;
using testing::on_gpu;

std::size_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  gpu().api()->make_current();
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  return free;
}

Allocation request(std::size_t nbytes) {
  return gpu().allocator().allocate(nbytes, MemoryCategory::Activation);
}

// As a step does: tensors of many sizes that live for different times, on two streams, and results
// that come back to the host.
void one_round(const Stream& other, float first) {
  std::vector<Tensor> held;
  for (std::int64_t layer = 1; layer <= 6; ++layer) {
    held.push_back(counted_on_gpu(1000 * layer, first));
    other.wait(gpu().compute_stream());
    Tensor copied;
    {
      const StreamGuard guard(other);
      copied = empty_on_gpu(1000 * layer);
      copy_async(copied, held.back());
    }
    if (layer % 2 == 0) {
      held.pop_back();
    }
    gpu().compute_stream().wait(other);
    CHECK(holds_counted(copied, first));
  }
}

}  // namespace

TEST_SUITE("cuda/allocator") {
  TEST_CASE("a block that was given back serves the next request of its stream and size") {
    on_gpu([] {
      std::byte* const first = request(1000).data();
      CHECK(request(1000).data() == first);
      CHECK(request(1020).data() == first);
      CHECK(request(5000).data() != first);
      CHECK(gpu().allocator().counters().raw_allocations == 2);
    });
  }

  TEST_CASE("a block serves no other stream") {
    on_gpu([] {
      std::byte* const first = request(1000).data();
      const StreamGuard guard(gpu().make_stream("other"));
      CHECK(request(1000).data() != first);
    });
  }

  TEST_CASE("a block that another stream reads is not overwritten before that has ended") {
    on_gpu([] {
      constexpr std::int64_t kNumel = 100000;
      const Stream copy = gpu().make_stream("copy");
      std::vector<Tensor> received;
      for (int round = 0; round < 16; ++round) {
        const auto first = static_cast<float>(round);
        Tensor sent = counted_on_gpu(kNumel, first);
        received.push_back(pinned({kNumel}, DType::Float32, kGpu));
        copy.wait(gpu().compute_stream());
        {
          const StreamGuard guard(copy);
          copy_async(received.back(), sent);
        }
        const void* const block = sent.view().data;
        sent = {};
        const Tensor next = counted_on_gpu(kNumel, -first);
        CHECK(next.view().data == block);
      }
      copy.synchronize();
      for (int round = 0; round < 16; ++round) {
        const auto values = received[static_cast<std::size_t>(round)].values<float>();
        CHECK(values.front() == static_cast<float>(round));
        CHECK(values.back() == static_cast<float>(round + kNumel - 1));
      }
    });
  }

  TEST_CASE("from the second round on nothing is asked of the device") {
    on_gpu([] {
      const Stream other = gpu().make_stream("other");
      one_round(other, 0);
      const std::int64_t device = gpu().allocator().counters().raw_allocations;
      const std::int64_t host = gpu().pinned().counters().raw_allocations;
      CHECK(device > 0);
      CHECK(host > 0);
      for (int round = 1; round < 8; ++round) {
        one_round(other, static_cast<float>(round));
      }
      CHECK(gpu().allocator().counters().raw_allocations == device);
      CHECK(gpu().pinned().counters().raw_allocations == host);
    });
  }

  TEST_CASE("memory that the device does not have is named with its five largest holders") {
    on_gpu([] {
      std::vector<Tensor> held;
      for (std::int64_t i = 1; i <= 6; ++i) {
        held.push_back(empty_on_gpu(1024 * i));
        held.back().storage()->set_name("h." + std::to_string(i));
      }
      const std::size_t nbytes = size_class(free_memory()) + (std::size_t{1} << 40);
      CHECK_THROWS_WITH_AS(
          gpu().allocator().allocate(nbytes, MemoryCategory::Gradient),
          doctest::Contains(("allocate: there are no " + std::to_string(size_class(nbytes)) +
                             " bytes more of cuda:0 for gradient on stream compute: 86016 are in "
                             "use; the largest of them: 24576 activation of h.6, 20480 activation "
                             "of h.5, 16384 activation of h.4, 12288 activation of h.3, 8192 "
                             "activation of h.2")
                                .c_str()),
          OutOfMemoryError);
      // Of the smallest of six nothing is said, and the device goes on.
      CHECK(holds_counted(counted_on_gpu(1000)));
    });
  }

  TEST_CASE("cached blocks go back to the device before it has no more") {
    on_gpu([] {
      const std::size_t free = free_memory();
      request(free / 10 * 6).reset();
      const Allocation second = request(free / 10 * 8);
      CHECK(second.data() != nullptr);
      CHECK(gpu().allocator().counters().raw_bytes ==
            static_cast<std::int64_t>(size_class(free / 10 * 8)));
    });
  }

  TEST_CASE("cached blocks go back when they are asked for, once the streams have passed them") {
    on_gpu([] {
      const Tensor kept = counted_on_gpu(1 << 20);
      const Stream copy = gpu().make_stream("copy");
      const Tensor received = pinned({1 << 20}, DType::Float32, kGpu);
      {
        const Tensor sent = counted_on_gpu(1 << 20, 5);
        copy.wait(gpu().compute_stream());
        const StreamGuard guard(copy);
        copy_async(received, sent);
      }
      const std::size_t free = free_memory();
      gpu().allocator().release_cached();
      gpu().pinned().release_cached();
      CHECK(gpu().allocator().counters().raw_bytes == 4 << 20);
      CHECK(gpu().pinned().counters().raw_bytes == 4 << 20);
      CHECK(free_memory() >= free + (4U << 20U));
      copy.synchronize();
      CHECK(received.values<float>()[1] == 6);
      CHECK(holds_counted(kept));
    });
  }

  TEST_CASE("blocks are aligned, also those of nothing, and the host can use pinned ones") {
    on_gpu([] {
      for (const std::size_t nbytes : {0, 1, 65, 100000}) {
        const Allocation block = request(nbytes);
        CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % kAlignment == 0);
        const Allocation host = gpu().pinned().allocate(nbytes, MemoryCategory::Data);
        CHECK(reinterpret_cast<std::uintptr_t>(host.data()) % kAlignment == 0);
        std::fill_n(host.data(), nbytes, std::byte{1});
      }
    });
  }
}

}  // namespace fsdptrain
