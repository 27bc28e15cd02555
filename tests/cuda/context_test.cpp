#include <string>

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "runtime/base/cuda_versions.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tests/cuda/copies.h"

namespace fsdptrain {
namespace {

using testing::counted_on_gpu;
using testing::holds_counted;
using testing::kGpu;
using testing::on_gpu;
using testing::without_gpu;

int num_gpus() {
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  return count;
}

}  // namespace

TEST_SUITE("cuda/context") {
  TEST_CASE("a rank context has one device context of a GPU, with a stream and memory") {
    on_gpu([] {
      RankContext& context = current_context();
      DeviceContext& device = context.device(kGpu);
      CHECK(&context.device(kGpu) == &device);
      CHECK(&context.allocator(kGpu) == &device.allocator());
      CHECK(device.api()->device() == kGpu);
      CHECK(device.api()->description().starts_with("cuda:0: "));
      CHECK(device.api()->description().find("compute capability") != std::string::npos);
      const Launch launch = context.launch(kGpu);
      CHECK(launch.device == kGpu);
      CHECK(launch.stream == device.compute_stream().handle());
      CHECK(launch.allocator == &device.allocator());
    });
  }

  TEST_CASE("each rank context has streams and memory of its own on one GPU") {
    on_gpu([] {
      const void* const stream = current_context().launch(kGpu).stream;
      const Tensor outer = counted_on_gpu(1000);
      {
        RankContext second({.threads = 1, .isa = {}, .log_prefix = {}});
        const ContextGuard bound(second);
        CHECK(current_context().launch(kGpu).stream != stream);
        CHECK(holds_counted(counted_on_gpu(1000, 5), 5));
        CHECK(second.allocator(kGpu).counters().raw_allocations == 1);
      }
      CHECK(current_context().launch(kGpu).stream == stream);
      CHECK(holds_counted(outer));
    });
  }

  TEST_CASE("a GPU that the machine does not have is refused with the number of those it has") {
    on_gpu([] {
      const std::string has = ": this machine has " + std::to_string(num_gpus()) + " CUDA devices";
      CHECK_THROWS_WITH_AS(current_context().device(Device::cuda(99)),
                           doctest::Contains(("cuda:99" + has).c_str()), DeviceError);
      CHECK_THROWS_WITH_AS(current_context().device(Device::cuda(-1)),
                           doctest::Contains(("cuda:-1" + has).c_str()), DeviceError);
      // And again: a context that could not be made is not kept.
      CHECK_THROWS_AS(current_context().device(Device::cuda(99)), DeviceError);
      CHECK(holds_counted(counted_on_gpu(10)));
    });
  }

  TEST_CASE("a program says which CUDA it was built with, and what the machine has") {
    on_gpu([] {
      const CudaVersions versions = cuda_versions();
      int runtime = 0;
      int driver = 0;
      REQUIRE(cudaRuntimeGetVersion(&runtime) == cudaSuccess);
      REQUIRE(cudaDriverGetVersion(&driver) == cudaSuccess);
      const auto major = [](int version) { return std::to_string(version / 1000) + "."; };
      CHECK(versions.built.starts_with(major(CUDART_VERSION)));
      CHECK(versions.running.starts_with(major(runtime)));
      CHECK(versions.driver.starts_with(major(driver)));
    });
  }

  TEST_CASE("a machine without a GPU or without a driver says so by name") {
    without_gpu([] {
      std::string text;
      try {
        static_cast<void>(make_cuda_api(0));
      } catch (const DeviceError& error) {
        text = error.what();
      }
      CAPTURE(text);
      const bool no_device = text.find("cuda:0: this machine has 0 CUDA devices") == 0;
      const bool no_driver = text.find(
                                 "cuda:0: this machine has no CUDA driver that serves this "
                                 "program: CUDA says cudaError") == 0;
      CHECK((no_device || no_driver));
    });
  }
}

}  // namespace fsdptrain
