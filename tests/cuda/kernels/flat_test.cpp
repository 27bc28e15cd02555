#include <array>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/copy.h"
#include "kernels/optimizer.h"
#include "kernels/segments.h"
#include "tests/cuda/kernels/arrays.h"
#include "tests/cuda/kernels/values.h"

namespace fsdptrain::testing {
namespace {

template <class T>
Array dense(std::int64_t count, std::uint64_t seed) {
  return array_of(some_values<T>(count, seed), {count}, {1});
}

Array scalar(double value) {
  return array_of(std::vector<double>{value}, {1}, {1});
}

// With room for every dtype and layout below.
Array any_bytes(DType dtype, const Shape& sizes, const Strides& strides, std::uint64_t seed) {
  return dispatch_any(
      dtype, [&]<class T>() { return array_of(some_values<T>(60, seed), sizes, strides); });
}

constexpr std::array kDTypes{DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                             DType::Int64,   DType::Int32,   DType::UInt16,   DType::UInt8};
constexpr std::array kFloating{DType::Float32, DType::Float64, DType::BFloat16};

// Segments of several sizes with gaps between them, more than one launch takes.
std::vector<kernels::Range> many_ranges(std::int64_t& numel) {
  std::vector<kernels::Range> ranges;
  numel = 3;
  for (std::int64_t i = 0; i < 150; ++i) {
    const std::int64_t size = i * i % 13;
    ranges.push_back({numel, numel + size});
    numel += size + i % 3;
  }
  return ranges;
}

std::vector<kernels::AdamwSegment> adamw_segments(const std::vector<kernels::Range>& ranges) {
  std::vector<kernels::AdamwSegment> segments;
  for (const kernels::Range& range : ranges) {
    const auto i = static_cast<double>(segments.size());
    segments.push_back({.begin = range.begin,
                        .end = range.end,
                        .decay = 1 - 0.001 * i,
                        .step_size = 1e-3 * (i + 1),
                        .inv_correction = 1 + 0.1 * i});
  }
  return segments;
}

template <class T>
void check_adamw(std::uint64_t seed, const std::vector<kernels::AdamwSegment>& segments,
                 std::int64_t numel, bool has_scale) {
  std::vector<T> squares = some_values<T>(numel, 4);
  for (T& square : squares) {
    square *= square;
  }
  check_bits_of_cpu(seed,
                    {dense<T>(numel, 1), dense<T>(numel, 2), dense<T>(numel, 3),
                     array_of(squares, {numel}, {1}), scalar(0.37)},
                    [&](const Launch& launch, const std::vector<View>& views) {
                      kernels::adamw(launch, views[0], views[1], views[2], views[3], segments,
                                     {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
                                     has_scale ? &views[4] : nullptr);
                    });
}

TEST_SUITE("cuda/kernels/flat") {
  TEST_CASE("copies between all dtypes on the device have the bits of the CPU") {
    if (!has_gpu()) {
      return;
    }
    std::uint64_t seed = 0;
    const auto run = [](const Launch& launch, const std::vector<View>& views) {
      kernels::copy(launch, views[0], views[1]);
    };
    for (const DType out : kDTypes) {
      for (const DType in : kDTypes) {
        CAPTURE(name_of(out));
        CAPTURE(name_of(in));
        check_bits_of_cpu(seed++, {any_bytes(out, {59}, {1}, 1), any_bytes(in, {59}, {1}, 2)}, run);
        check_bits_of_cpu(
            seed++,
            {any_bytes(out, {5, 3, 2}, {11, 4, 1}, 1), any_bytes(in, {5, 3, 2}, {1, 0, 5}, 2)},
            run);
        check_bits_of_cpu(
            seed++, {any_bytes(out, {0, 3}, {3, 1}, 1), any_bytes(in, {0, 3}, {3, 1}, 2)}, run);
      }
    }
  }

  TEST_CASE("accumulation and filling on the device have the bits of the CPU") {
    if (!has_gpu()) {
      return;
    }
    std::uint64_t seed = 0;
    for (const DType out : kFloating) {
      for (const DType in : kFloating) {
        check_bits_of_cpu(seed++,
                          {any_bytes(out, {7, 4}, {8, 1}, 1), any_bytes(in, {7, 4}, {1, 7}, 2)},
                          [](const Launch& launch, const std::vector<View>& views) {
                            kernels::accumulate(launch, views[0], views[1]);
                          });
      }
    }
    for (const DType out : kDTypes) {
      for (const double value : {0.0, 2.7, -300.0}) {
        check_bits_of_cpu(seed++, {any_bytes(out, {7, 4}, {8, 2}, 1)},
                          [value](const Launch& launch, const std::vector<View>& views) {
                            kernels::fill(launch, views[0], value);
                          });
      }
    }
  }

  TEST_CASE("AdamW over more segments than one launch takes has the bits of the CPU") {
    if (!has_gpu()) {
      return;
    }
    std::int64_t numel = 0;
    const auto segments = adamw_segments(many_ranges(numel));
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      check_adamw<float>(seed, segments, numel, seed % 2 == 0);
      check_adamw<double>(seed, segments, numel, seed % 2 == 0);
    }
  }

  TEST_CASE("AdamW over no segments and empty ones changes nothing") {
    if (!has_gpu()) {
      return;
    }
    check_adamw<float>(0, {}, 3, true);
    check_adamw<float>(0, adamw_segments({{0, 0}, {2, 2}}), 3, false);
    check_adamw<float>(0, adamw_segments({{0, 1}}), 1, false);
  }

  TEST_CASE("SGD with and without momentum has the bits of the CPU") {
    if (!has_gpu()) {
      return;
    }
    std::int64_t numel = 0;
    std::vector<kernels::SgdSegment> segments;
    for (const kernels::Range& range : many_ranges(numel)) {
      const auto i = static_cast<double>(segments.size());
      segments.push_back({range.begin, range.end, 0.01 * i, 0.1});
    }
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      check_bits_of_cpu(
          seed,
          {dense<float>(numel, 1), dense<float>(numel, 2), dense<float>(numel, 3), scalar(0.37)},
          [&](const Launch& launch, const std::vector<View>& views) {
            kernels::sgd(launch, views[0], views[1], seed % 2 == 0 ? &views[2] : nullptr, 0.9,
                         segments, &views[3]);
          });
    }
  }

  TEST_CASE("the square root of a sum and the clip factor have the bits of the CPU") {
    if (!has_gpu()) {
      return;
    }
    std::uint64_t seed = 0;
    for (const double sum : {0.0, 0.3, 12.5, 1e300, -1.0}) {
      check_bits_of_cpu(seed++, {scalar(sum), scalar(0)},
                        [](const Launch& launch, const std::vector<View>& views) {
                          kernels::sqrt_of(launch, views[0], views[0]);
                          kernels::clip_factor(launch, views[1], views[0], 1);
                        });
    }
  }

  TEST_CASE("zeroed segments have the bits of the CPU") {
    if (!has_gpu()) {
      return;
    }
    std::int64_t numel = 0;
    const auto ranges = many_ranges(numel);
    std::uint64_t seed = 0;
    for (const DType dtype : kDTypes) {
      const Array out = dispatch_any(dtype, [&]<class T>() { return dense<T>(numel, 1); });
      check_bits_of_cpu(seed++, {out}, [&](const Launch& launch, const std::vector<View>& views) {
        kernels::zero_segments(launch, views[0], ranges);
      });
    }
  }
}

}  // namespace
}  // namespace fsdptrain::testing
