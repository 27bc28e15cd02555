#include "runtime/tensor/transfer.h"

#include <algorithm>
#include <cstring>
#include <vector>

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

constexpr DType kDTypes[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                             DType::Int64,   DType::Int32,   DType::UInt16,   DType::UInt8};

Tensor some_bytes(const Shape& shape, DType dtype) {
  Tensor tensor = pinned(shape, dtype, kGpu);
  std::byte next{7};
  for (std::byte& byte : tensor.mutable_bytes()) {
    next = static_cast<std::byte>(std::to_integer<unsigned>(next) * 37 + 11);
    byte = next;
  }
  return tensor;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

}  // namespace

TEST_SUITE("cuda/transfer") {
  TEST_CASE("bytes of every dtype come back as they went, by way of pinned memory") {
    on_gpu([] {
      for (const DType dtype : kDTypes) {
        for (const std::int64_t numel : {1, 33, 50000}) {
          CAPTURE(numel);
          const Tensor sent = some_bytes({numel}, dtype);
          const Tensor on_device = Tensor::empty({numel}, dtype, kGpu);
          const Tensor received = pinned({numel}, dtype, kGpu);
          copy_async(on_device, sent);
          copy_async(received, on_device);
          gpu().current_stream().synchronize();
          CHECK(same_bytes(sent, received));
        }
      }
    });
  }

  TEST_CASE("bytes come back as they went, by way of memory that is not pinned") {
    on_gpu([] {
      const Tensor host = Tensor::of({1, -2, 3.5});
      const Tensor on_device = empty_on_gpu(3);
      const Tensor back = Tensor::empty({3});
      copy_async(on_device, host);
      copy_async(back, on_device);
      gpu().current_stream().synchronize();
      CHECK(back.to_vector() == std::vector<double>{1, -2, 3.5});
    });
  }

  TEST_CASE("a tensor keeps shape, dtype and values on its way to the device and back") {
    on_gpu([] {
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{2, 3, 5}}) {
        CAPTURE(shape);
        for (const DType dtype : kDTypes) {
          const Tensor host = some_bytes(shape, dtype);
          const Tensor on_device = to_device(host, kGpu);
          CHECK(on_device.device() == kGpu);
          CHECK(on_device.shape() == shape);
          CHECK(on_device.dtype() == dtype);
          CHECK(same_bytes(host, to_device(on_device, Device::cpu())));
        }
      }
    });
  }

  TEST_CASE("a tensor that is on the device already is not copied") {
    on_gpu([] {
      const Tensor on_device = counted_on_gpu(10);
      CHECK(to_device(on_device, kGpu).storage() == on_device.storage());
    });
  }

  TEST_CASE("the host reads single values and all of them, and waits for what makes them") {
    on_gpu([] {
      const Tensor on_device = counted_on_gpu(6, 10);
      CHECK(on_device.item(4) == 14);
      CHECK(on_device.to_vector() == std::vector<double>{10, 11, 12, 13, 14, 15});
      const Tensor part = on_device.alias({2}, {1}, 3);
      CHECK(part.item() == 13);
      CHECK(part.to_vector() == std::vector<double>{13, 14});
      CHECK(empty_on_gpu(0).to_vector().empty());
      CHECK_THROWS_AS(on_device.item(6), ShapeError);
    });
  }

  TEST_CASE("the host has no bytes of a tensor of the device") {
    on_gpu([] {
      CHECK_THROWS_WITH_AS(counted_on_gpu(3).bytes(),
                           doctest::Contains("bytes: needs a tensor on cpu, got cuda:0"),
                           DeviceError);
    });
  }

  TEST_CASE("there is no pinned tensor for a device without bytes") {
    CHECK_THROWS_WITH_AS(static_cast<void>(pinned({2}, DType::Float32, Device::meta())),
                         doctest::Contains("pinned: the meta device has no bytes"), DeviceError);
  }

  TEST_CASE("a pinned tensor may go as soon as its copy was asked for") {
    on_gpu([] {
      constexpr std::int64_t kNumel = 20000;
      std::vector<Tensor> received;
      for (int round = 0; round < 20; ++round) {
        received.push_back(counted_on_gpu(kNumel, static_cast<float>(1000 * round)));
      }
      for (int round = 0; round < 20; ++round) {
        CHECK(holds_counted(received[static_cast<std::size_t>(round)],
                            static_cast<float>(1000 * round)));
      }
    });
  }

  TEST_CASE("a copy counts as a write of what it writes") {
    on_gpu([] {
      const Tensor on_device = empty_on_gpu(4);
      const std::uint64_t version = on_device.storage()->version();
      copy_async(on_device, counted(4));
      CHECK(on_device.storage()->version() == version + 1);
    });
  }

  TEST_CASE("copies that cannot be are refused with both sides") {
    on_gpu([] {
      const Tensor on_device = empty_on_gpu(6);
      CHECK_THROWS_WITH_AS(copy_async(on_device, Tensor::empty({6}, DType::Float64)),
                           doctest::Contains("copy_async: from float64 to float32"), DTypeError);
      CHECK_THROWS_WITH_AS(copy_async(on_device, Tensor::empty({7})),
                           doctest::Contains("copy_async: needs two contiguous tensors of one "
                                             "size, got [7] and [6]"),
                           ShapeError);
      CHECK_THROWS_AS(copy_async(on_device.alias({2, 3}, {1, 2}, 0), Tensor::empty({6})),
                      ShapeError);
      CHECK_THROWS_WITH_AS(
          copy_async(on_device, Tensor::empty({6}, DType::Float32, Device::meta())),
          doctest::Contains("copy_async: the meta device has no bytes"), DeviceError);
      CHECK_THROWS_WITH_AS(to_device(on_device, Device::meta()),
                           doctest::Contains("to_device: from cuda:0 to meta"), DeviceError);
      // The address is never used.
      const auto storage = Storage::placed(Device::cuda(1), 24);
      storage->restore(on_device.storage()->data());
      const Tensor elsewhere = Tensor::over(storage, DType::Float32, {6}, {1}, 0);
      CHECK_THROWS_WITH_AS(
          copy_async(elsewhere, on_device),
          doctest::Contains("copy_async: cannot copy from cuda:0 to cuda:1 on one stream"),
          DeviceError);
    });
  }
}

}  // namespace fsdptrain
