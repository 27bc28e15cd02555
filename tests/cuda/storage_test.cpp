#include "runtime/tensor/storage.h"

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

}  // namespace

TEST_SUITE("cuda/storage") {
  TEST_CASE("bytes of the device go and come back under every tensor that shares them") {
    on_gpu([] {
      const MemoryCounters& counters = gpu().allocator().counters();
      const Tensor whole = counted_on_gpu(1000);
      const Tensor part = whole.alias({10}, {1}, 20);
      const std::int64_t before = counters.live_total;
      whole.storage()->set_name("wte.weight");
      whole.storage()->release();
      CHECK(counters.live_total < before);
      CHECK_THROWS_WITH_AS(
          part.view(),
          doctest::Contains("data: the storage of wte.weight of 4000 bytes is released"),
          StorageError);
      CHECK_THROWS_AS(copy_async(whole, counted(1000)), StorageError);
      whole.storage()->restore();
      CHECK(counters.live_total == before);
      copy_async(whole, counted(1000, 100));
      CHECK(holds_counted(part, 120));
    });
  }

  TEST_CASE("bytes that come and go every round are asked of the device once") {
    on_gpu([] {
      const Tensor tensor = empty_on_gpu(5000);
      const std::int64_t raw = gpu().allocator().counters().raw_allocations;
      for (int round = 0; round < 10; ++round) {
        tensor.storage()->release();
        tensor.storage()->restore();
        copy_async(tensor, counted(5000, static_cast<float>(round)));
        CHECK(holds_counted(tensor, static_cast<float>(round)));
      }
      CHECK(gpu().allocator().counters().raw_allocations == raw);
    });
  }

  TEST_CASE("bytes that another stream used come back after it has passed") {
    on_gpu([] {
      const Stream copy = gpu().make_stream("copy");
      const Tensor received = pinned({5000}, DType::Float32, kGpu);
      const Tensor tensor = counted_on_gpu(5000, 1);
      copy.wait(gpu().compute_stream());
      {
        const StreamGuard guard(copy);
        copy_async(received, tensor);
      }
      tensor.storage()->release();
      tensor.storage()->restore();
      copy_async(tensor, counted(5000, 7));
      CHECK(holds_counted(tensor, 7));
      copy.synchronize();
      CHECK(received.values<float>()[4999] == 5000);
    });
  }

  TEST_CASE("a placed storage is where its owner says, within a block of the device") {
    on_gpu([] {
      const Tensor flat = counted_on_gpu(100);
      const auto placed = Storage::placed(kGpu, 40);
      const Tensor window = Tensor::over(placed, DType::Float32, {10}, {1}, 0);
      CHECK_THROWS_AS(window.view(), StorageError);
      placed->restore(flat.storage()->data() + 80);
      CHECK(holds_counted(window, 20));
      copy_async(window, counted(10, 500));
      CHECK(flat.item(20) == 500);
      CHECK(flat.item(30) == 30);
      placed->release();
      placed->restore(flat.storage()->data());
      CHECK(holds_counted(window));
    });
  }

  TEST_CASE("pinned bytes are the host's, and go and come back too") {
    on_gpu([] {
      const Tensor host = counted(100);
      CHECK(host.device() == Device::cpu());
      CHECK(gpu().pinned().counters().live_total > 0);
      const Tensor on_device = to_device(host, kGpu);
      host.storage()->release();
      CHECK(gpu().pinned().counters().live_total == 0);
      host.storage()->restore();
      copy_async(host, on_device);
      gpu().current_stream().synchronize();
      CHECK(holds_counted(host));
    });
  }
}

}  // namespace fsdptrain
