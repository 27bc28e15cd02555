#include "tests/fakecuda/kernels/view_bytes.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fakecuda/kernels/thread_order.h"
#include "tests/support/kernel_map.h"

namespace fsdptrain::fakecuda {
namespace {

// (byte offset, bytes), by offset.
std::set<std::pair<std::ptrdiff_t, std::size_t>> offsets(const std::vector<Range>& ranges,
                                                         const void* base) {
  std::set<std::pair<std::ptrdiff_t, std::size_t>> result;
  for (const Range& range : ranges) {
    result.emplace(static_cast<const std::byte*>(range.data) - static_cast<const std::byte*>(base),
                   range.nbytes);
  }
  return result;
}

using Offsets = std::set<std::pair<std::ptrdiff_t, std::size_t>>;

TEST_SUITE("fakecuda/kernels/view_bytes") {
  TEST_CASE("a view is the bytes of its elements, in as few ranges as its layout allows") {
    const std::vector<float> memory(100);
    const auto of = [&](const Shape& sizes, const Strides& strides) {
      const View view = testing::with_layout(testing::view_of(memory), sizes, strides);
      return offsets(bytes_of({view}), memory.data());
    };
    CHECK(of({6, 4}, {4, 1}) == Offsets{{0, 96}});
    CHECK(of({4, 6}, {1, 4}) == Offsets{{0, 96}});
    CHECK(of({3, 4}, {0, 1}) == Offsets{{0, 16}});
    CHECK(of({2, 4}, {10, 1}) == Offsets{{0, 16}, {40, 16}});
    CHECK(of({3}, {2}) == Offsets{{0, 4}, {8, 4}, {16, 4}});
    CHECK(of({2, 2, 2}, {2, 20, 1}) == Offsets{{0, 16}, {80, 16}});
    CHECK(of({}, {}) == Offsets{{0, 4}});
    CHECK(of({3, 0}, {1, 1}).empty());
  }

  TEST_CASE("operands may be parts of a view, or nothing") {
    const std::vector<double> memory(100);
    const View view = testing::view_of(memory);
    const std::vector<kernels::Range> parts{{2, 5}, {50, 51}};
    CHECK(offsets(bytes_of({{view, parts}}), memory.data()) == Offsets{{16, 24}, {400, 8}});
    CHECK(bytes_of({{view, false}, nullptr}).empty());
  }
}

TEST_SUITE("fakecuda/kernels/thread_order") {
  TEST_CASE("every thread comes once, in an order of its own for each seed") {
    for (const std::int64_t count : {1, 2, 6, 256, 257}) {
      std::set<std::vector<std::int64_t>> orders;
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        const ThreadOrder order(seed, 1, count);
        std::vector<std::int64_t> threads;
        for (std::int64_t step = 0; step < count; ++step) {
          threads.push_back(order.at(step));
        }
        orders.insert(threads);
        std::ranges::sort(threads);
        for (std::int64_t i = 0; i < count; ++i) {
          REQUIRE(threads[static_cast<std::size_t>(i)] == i);
        }
      }
      CHECK(orders.size() >= static_cast<std::size_t>(std::min<std::int64_t>(count, 6)));
    }
    CHECK(ThreadOrder(0, 1, 9).at(0) == 0);
    CHECK(ThreadOrder(1, 1, 9).at(0) == 8);
  }
}

}  // namespace
}  // namespace fsdptrain::fakecuda
