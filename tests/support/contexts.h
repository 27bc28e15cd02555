#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "runtime/tensor/tensor.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::testing {

// Runs `body` once per ISA variant of this CPU, under a rank context of its own.
inline void for_each_isa(const std::function<void()>& body) {
  for (const Isa isa : supported_isas()) {
    CAPTURE(name_of(isa));
    RankContext context({.threads = 2, .isa = isa, .log_prefix = {}});
    const ContextGuard bound(context);
    body();
  }
}

// The dense tensors that `body` returns have the same bits for any number of threads, in every
// ISA variant.
inline void check_same_bits(const std::function<std::vector<Tensor>()>& body) {
  for (const Isa isa : supported_isas()) {
    std::vector<std::vector<std::byte>> expected;
    for (const int threads : {1, 2, 3, 5, 1}) {
      CAPTURE(name_of(isa));
      CAPTURE(threads);
      RankContext context({.threads = threads, .isa = isa, .log_prefix = {}});
      const ContextGuard bound(context);
      const std::vector<Tensor> tensors = body();
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        CAPTURE(i);
        const auto bytes = tensors[i].bytes();
        if (expected.size() == i) {
          expected.emplace_back(bytes.begin(), bytes.end());
        }
        CHECK(std::ranges::equal(expected[i], bytes));
      }
    }
  }
}

// A run on meta counts the same bytes as one on the CPU. `body` makes its tensors on `device`.
inline void check_same_memory(const std::function<void(Device device)>& body) {
  RankContext context({.threads = 2, .isa = {}, .log_prefix = {}});
  const ContextGuard bound(context);
  body(Device::cpu());
  body(Device::meta());
  const MemoryCounters& cpu = context.allocator(Device::cpu()).counters();
  const MemoryCounters& meta = context.allocator(Device::meta()).counters();
  CHECK(cpu.peak_total > 0);
  CHECK(cpu == meta);
}

// What a result of this dtype may be off by, relative to max(1, |value|).
inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 1e-13;
    case DType::BFloat16:
      return 0x1p-8;
    case DType::Float32:
      return 2e-6;
    case DType::Float16:
    case DType::Int64:
    case DType::Int32:
    case DType::UInt16:
    case DType::UInt8:
      break;
  }
  return 0;
}

// Every element within `tolerance` times max(1, |expected|); NaN where NaN is expected.
inline void expect_close(const Tensor& actual, const std::vector<double>& expected,
                         double tolerance) {
  REQUIRE(actual.numel() == static_cast<std::int64_t>(expected.size()));
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < actual.numel(); ++i) {
    const double want = expected[static_cast<std::size_t>(i)];
    const double got = actual.item(i);
    const bool equal = got == want || (std::isnan(got) && std::isnan(want)) ||
                       std::abs(got - want) <= tolerance * std::max(1.0, std::abs(want));
    if (!equal) {
      ++wrong;
      CAPTURE(i);
      CAPTURE(want);
      CAPTURE(got);
      CHECK(equal);
    }
  }
  CHECK(wrong == 0);
}

inline void expect_close(const Tensor& actual, const std::vector<double>& expected) {
  expect_close(actual, expected, tolerance_of(actual.dtype()));
}

// The same values of shape [m, n], laid out column by column.
inline Tensor column_major(const Tensor& x) {
  const Tensor t = Tensor::empty({x.size(1), x.size(0)}, x.dtype());
  Tensor view = views::transpose(t, 0, 1);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    view.set_item(i, x.item(i));
  }
  return view;
}

}  // namespace fsdptrain::testing
