#include "kernels/segments.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "tests/support/kernel_map.h"

namespace fsdptrain::testing {
namespace {

constexpr std::array kDTypes{DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                             DType::Int64,   DType::Int32,   DType::UInt16,   DType::UInt8};

// Bytes of 7, of which the segments are zeroed by one variant.
std::vector<std::uint8_t> zeroed(Isa isa, DType dtype, std::int64_t numel,
                                 std::span<const kernels::Range> segments) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(numel) * size_of(dtype), 7);
  View out = with_layout(view_of(bytes), {numel}, {1});
  out.dtype = dtype;
  Launch launch = current_context().launch(Device::cpu());
  launch.isa = isa;
  kernels::zero_segments(launch, out, segments);
  return bytes;
}

TEST_SUITE("kernels/segments") {
  TEST_CASE("the elements of the segments become zero and no others change") {
    RankContext context(RankContext::Options{.threads = 3});
    const ContextGuard guard(context);
    constexpr std::int64_t kNumel = 100003;
    const std::vector<kernels::Range> segments{
        {0, 1}, {5, 5}, {7, 40000}, {40001, 40002}, {kNumel - 3, kNumel}};
    for (const Isa isa : supported_isas()) {
      for (const DType dtype : kDTypes) {
        CAPTURE(name_of(isa));
        CAPTURE(name_of(dtype));
        std::vector<std::uint8_t> expected(kNumel * size_of(dtype), 7);
        for (const kernels::Range& segment : segments) {
          const auto begin = static_cast<std::size_t>(segment.begin) * size_of(dtype);
          const auto end = static_cast<std::size_t>(segment.end) * size_of(dtype);
          std::fill(expected.begin() + static_cast<std::ptrdiff_t>(begin),
                    expected.begin() + static_cast<std::ptrdiff_t>(end), std::uint8_t{0});
        }
        CHECK(zeroed(isa, dtype, kNumel, segments) == expected);
      }
    }
  }

  TEST_CASE("no segments change nothing") {
    RankContext context;
    const ContextGuard guard(context);
    CHECK(zeroed(Isa::Baseline, DType::Float32, 3, {}) == std::vector<std::uint8_t>(12, 7));
    CHECK(zeroed(Isa::Baseline, DType::Float32, 0, {}).empty());
  }
}

}  // namespace
}  // namespace fsdptrain::testing
