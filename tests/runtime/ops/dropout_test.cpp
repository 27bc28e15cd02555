#include "runtime/ops/dropout.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {
namespace {

using testing::for_each_isa;
using testing::random_tensor;

Tensor ones(const Shape& shape, DType dtype = DType::Float32) {
  return Tensor::full(shape, 1, dtype);
}

// One mask of ones under other keys than the bound ones.
std::vector<double> mask_of(const RandomKeys& keys, std::uint64_t id, const Shape& shape) {
  RankContext context({.threads = 2, .isa = {}, .log_prefix = {}});
  const ContextGuard bound(context);
  context.random = keys;
  return ops::dropout(ones(shape), 0.5, {id}).to_vector();
}

}  // namespace

TEST_SUITE("runtime/ops/dropout") {
  TEST_CASE_TEMPLATE("dropout zeroes by Philox and scales the rest", T, float, double, bfloat16) {
    for_each_isa([] {
      current_context().random = {11, 3, 40};
      const Philox mixed = philox(3, 9, 11 ^ 0x64726F706F757400u);
      const std::uint64_t key = std::uint64_t{mixed.word[1]} << 32 | mixed.word[0];
      for (const std::int64_t features : {0, 1, 7, 263}) {
        const Tensor x = random_tensor({2, 3, features}, 1, 1.0, kDTypeOf<T>);
        std::vector<double> expected;
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          const auto feature = static_cast<std::uint64_t>(i % features);
          const auto position = static_cast<std::uint64_t>(i / features % 3);
          const auto sample = 40 + static_cast<std::uint64_t>(i / features / 3);
          const auto word = philox(sample, position << 32 | feature / 4, key).word[feature % 4];
          expected.push_back(to_unit_interval(word) < 0.25 ? 0 : x.item(i) / 0.75);
        }
        testing::expect_close(ops::dropout(x, 0.25, {9}), expected);
      }
    });
  }

  TEST_CASE("dropout drops about a fraction p") {
    for (const double p : {0.1, 0.5, 0.9}) {
      const Tensor y = ops::dropout(ones({4, 100, 250}), p, {1});
      double dropped = 0;
      for (const double value : y.to_vector()) {
        dropped += value == 0 ? 1 : 0;
      }
      // Five standard deviations of 100,000 draws.
      CHECK(std::abs(dropped / 1e5 - p) < 5 * std::sqrt(p * (1 - p) / 1e5));
    }
  }

  TEST_CASE("the mask does not depend on how a batch is cut") {
    const std::vector<double> whole = mask_of({5, 6, 10}, 2, {2, 7, 13});
    std::vector<double> pieces = mask_of({5, 6, 10}, 2, {1, 7, 13});
    const std::vector<double> second = mask_of({5, 6, 11}, 2, {1, 7, 13});
    pieces.insert(pieces.end(), second.begin(), second.end());
    CHECK(whole == pieces);
    // Dimensions between sample and feature count as one position.
    CHECK(mask_of({5, 6, 10}, 2, {2, 21, 13}) == mask_of({5, 6, 10}, 2, {2, 3, 7, 13}));
    CHECK(mask_of({5, 6, 10}, 2, {2, 13}) == mask_of({5, 6, 10}, 2, {2, 1, 13}));
  }

  TEST_CASE("seed, step, sample and key each change the mask") {
    const Shape shape{1, 8, 16};
    const std::vector<double> mask = mask_of({5, 6, 10}, 2, shape);
    CHECK(mask == mask_of({5, 6, 10}, 2, shape));
    CHECK(mask != mask_of({4, 6, 10}, 2, shape));
    CHECK(mask != mask_of({5, 7, 10}, 2, shape));
    CHECK(mask != mask_of({5, 6, 11}, 2, shape));
    CHECK(mask != mask_of({5, 6, 10}, 3, shape));
  }

  TEST_CASE("backward uses the mask of the forward, whatever the keys are by then") {
    RandomKeys& keys = current_context().random;
    Tensor x = ones({2, 5, 9});
    x.set_requires_grad(true);
    const Tensor y = ops::dropout(x, 0.5, {4});
    keys = {1, 2, 3};
    autograd::backward(y, {.grad_output = ones(y.shape())});
    keys = {};
    CHECK(x.grad().to_vector() == y.to_vector());
    testing::check_gradient([](const Tensor& t) { return ops::dropout(t, 0.3, {8}); },
                            random_tensor({2, 3, 5}, 2));
  }

  TEST_CASE("dropout takes strided tensors, and p of 0 returns x") {
    const Tensor x = random_tensor({5, 7}, 3);
    CHECK(ops::dropout(testing::column_major(x), 0.4, {1}).to_vector() ==
          ops::dropout(x, 0.4, {1}).to_vector());
    CHECK(ops::dropout(x, 0, {1}).storage() == x.storage());
  }

  TEST_CASE("the bits of dropout do not depend on threads, runs or the variant") {
    testing::check_same_bits([] {
      return std::vector{
          ops::dropout(random_tensor({3, 33, 301}, 4, 1.0, DType::Float32), 0.1, {})};
    });
  }

  TEST_CASE("dropout counts the same memory on meta") {
    testing::check_same_memory([](Device device) {
      Tensor x = Tensor::full({3, 5, 7}, 1, DType::Float32, device);
      x.set_requires_grad(true);
      autograd::backward(ops::sum(ops::dropout(x, 0.5, {1})));
    });
  }

  TEST_CASE("dropout refuses what it cannot do") {
    const Tensor x = ones({2, 3});
    CHECK_THROWS_WITH_AS(ops::dropout(x, 1, {}),
                         doctest::Contains("dropout: p must be in [0, 1), got 1"), ConfigError);
    CHECK_THROWS_WITH_AS(ops::dropout(x, -0.5, {}), doctest::Contains("got -0.5"), ConfigError);
    CHECK_THROWS_WITH_AS(ops::dropout(x, std::nan(""), {}), doctest::Contains("got nan"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(ops::dropout(ones({3}), 0.5, {}),
                         doctest::Contains("of 2 to 4 dimensions, got [3]"), ShapeError);
    CHECK_THROWS_WITH_AS(
        ops::dropout(Tensor::zeros({2, 3}, DType::Int32), 0.5, {}),
        doctest::Contains("dropout: needs float32, float64 or bfloat16, got int32"), DTypeError);
  }
}

}  // namespace fsdptrain
