#include "kernels/dispatch.h"

#include <memory>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/cuda/tag_name.h"
#include "kernels/functors/tags.h"
#include "kernels/host_array.h"
#include "kernels/softmax.h"
#include "runtime/base/rank_context.h"
#include "tests/support/kernel_map.h"

namespace fsdptrain::testing {
namespace {

Launch on_cuda() {
  Launch launch = current_context().launch(Device::cpu());
  launch.device = Device::cuda(1);
  return launch;
}

TEST_SUITE("kernels/dispatch") {
  TEST_CASE("a program without CUDA names the kernel it cannot launch") {
    RankContext context;
    const ContextGuard guard(context);
    std::vector<float> x{1, 2, 3};
    CHECK_THROWS_WITH_AS(
        kernels::softmax(on_cuda(), view_of(x), view_of(x), {1, 3}, kernels::SoftmaxForm::Log),
        doctest::Contains("softmax: this program was built without CUDA"), DeviceError);
    CHECK_THROWS_WITH_AS(kernels::map(on_cuda(), kernels::Exp{}, view_of(x), view_of(x)),
                         doctest::Contains("exp: this program was built without CUDA"),
                         DeviceError);
    CHECK(x == std::vector<float>{1, 2, 3});
  }

  TEST_CASE("the kernel of a formula is called as the formula, in the words of ops") {
    using kernels::cuda::tag_name;
    CHECK(std::string_view(tag_name<kernels::Add>()) == "add");
    CHECK(std::string_view(tag_name<kernels::AddScaled>()) == "add_scaled");
    CHECK(std::string_view(tag_name<kernels::SiluMulBackward>()) == "silu_mul_backward");
  }

  TEST_CASE("a kernel on memory of the host names itself and the device it was asked to run on") {
    RankContext context;
    const ContextGuard guard(context);
    CHECK_THROWS_WITH_AS(kernels::run_on_host(on_cuda(), "count", []<Isa>() {}),
                         doctest::Contains("count: it works on memory of the host, got a launch on "
                                           "cuda:1"),
                         DeviceError);
  }

  TEST_CASE("workspace is allocated on meta, where nothing runs, and is freed when a kernel ends") {
    RankContext context;
    const ContextGuard guard(context);
    const auto allocate = [](const Launch& launch) {
      return launch.allocator->allocate(1000, MemoryCategory::Workspace);
    };
    int runs = 0;
    for (const Device device : {Device::meta(), Device::cpu()}) {
      Launch launch = context.launch(device);
      kernels::run_on(launch, "count", {}, allocate,
                      [&]<Isa>(const Launch&, const Allocation& workspace) {
                        CHECK(workspace);
                        ++runs;
                      });
      const MemoryCounters& counters = launch.allocator->counters();
      CHECK(counters.peak_of(MemoryCategory::Workspace) >= 1000);
      CHECK(counters.live_total == 0);
    }
    CHECK(runs == 1);
  }

  TEST_CASE("an array of the host is the caller's on the CPU and a copy on CUDA") {
    RankContext context;
    const ContextGuard guard(context);
    std::vector<int> values{1, 2, 3};
    const kernels::HostArray<int> same(context.launch(Device::cpu()), values);
    auto kept = std::make_unique<kernels::HostArray<int>>(on_cuda(), values);
    const kernels::HostArray<int> copy = *kept;
    kept.reset();
    values[1] = 7;
    CHECK(same.get().data() == values.data());
    CHECK(copy.get()[1] == 2);
    CHECK(copy.get().size() == 3);
  }
}

}  // namespace
}  // namespace fsdptrain::testing
