#include "runtime/data/permutation.h"

#include <map>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain::data {
namespace {

TEST_SUITE_BEGIN("runtime/data/permutation");

TEST_CASE("every index comes out once, for any size") {
  for (const std::uint64_t size : {1u, 2u, 3u, 4u, 5u, 1000u, (1u << 20) + 7}) {
    CAPTURE(size);
    const Permutation permutation(size, {.seed = 42, .epoch = 1});
    std::vector<bool> seen(size);
    std::uint64_t num_seen = 0;
    for (std::uint64_t index = 0; index < size; ++index) {
      const std::uint64_t image = permutation(index);
      if (image < size && !seen[image]) {
        seen[image] = true;
        ++num_seen;
      }
    }
    CHECK(num_seen == size);
  }
}

TEST_CASE("sizes up to the largest work") {
  for (const std::uint64_t size : {std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    const Permutation permutation(size, {.seed = 1, .epoch = 2});
    CHECK(permutation(0) < size);
    CHECK(permutation(0) != permutation(size - 1));
  }
  CHECK_THROWS_WITH_AS(Permutation(0, {}), doctest::Contains("must be positive"), ConfigError);
}

TEST_CASE("all orders of three samples occur about equally often") {
  std::map<std::vector<std::uint64_t>, int> counts;
  constexpr int kSeeds = 6000;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Permutation permutation(3, {.seed = seed});
    ++counts[{permutation(0), permutation(1), permutation(2)}];
  }
  CHECK(counts.size() == 6);
  for (const auto& [order, count] : counts) {
    // 1,000 expected; the standard deviation is 29.
    CHECK(count > 850);
    CHECK(count < 1150);
  }
}

TEST_CASE("seed, stream and epoch each change the order") {
  constexpr std::uint64_t kSize = 1000;
  const auto num_equal = [](const Permutation& a, const Permutation& b) {
    int equal = 0;
    for (std::uint64_t index = 0; index < kSize; ++index) {
      equal += a(index) == b(index) ? 1 : 0;
    }
    return equal;
  };
  const Permutation first(kSize, {.seed = 1});
  CHECK(num_equal(first, Permutation(kSize, {.seed = 1})) == kSize);
  CHECK(num_equal(first, Permutation(kSize, {.seed = 2})) < 10);
  CHECK(num_equal(first, Permutation(kSize, {.seed = 1, .stream = 1})) < 10);
  CHECK(num_equal(first, Permutation(kSize, {.seed = 1, .epoch = 1})) < 10);
}

TEST_CASE("the order is frozen: a resumed run must find the same samples") {
  std::vector<std::uint64_t> order;
  for (std::uint64_t number = 0; number < 8; ++number) {
    order.push_back(Permutation(1000003, {.seed = 1234})(number));
  }
  CHECK(order ==
        std::vector<std::uint64_t>{589688, 683238, 209678, 365044, 782570, 705417, 54184, 363435});
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
