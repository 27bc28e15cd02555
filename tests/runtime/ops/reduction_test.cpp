#include "runtime/ops/reduction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {
namespace {

using testing::check_gradient;
using testing::check_same_bits;
using testing::check_same_memory;
using testing::column_major;
using testing::expect_close;
using testing::for_each_isa;
using testing::random_tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The elements of x that each result stands for, in order.
std::vector<std::vector<double>> groups_of(const Tensor& x, const std::vector<int>& dims) {
  std::int64_t results = 1;
  std::vector<std::int64_t> weights(static_cast<std::size_t>(x.dims()), 0);
  for (int dim = x.dims() - 1; dim >= 0; --dim) {
    if (!dims.empty() && std::ranges::find(dims, dim) == dims.end()) {
      weights[static_cast<std::size_t>(dim)] = results;
      results *= x.size(dim);
    }
  }
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(results));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    std::int64_t rest = i;
    std::int64_t result = 0;
    for (int dim = x.dims() - 1; dim >= 0; --dim) {
      result += rest % x.size(dim) * weights[static_cast<std::size_t>(dim)];
      rest /= x.size(dim);
    }
    groups[static_cast<std::size_t>(result)].push_back(x.item(i));
  }
  return groups;
}

std::vector<double> sums_of(const Tensor& x, const std::vector<int>& dims, bool mean = false) {
  std::vector<double> sums;
  for (const std::vector<double>& group : groups_of(x, dims)) {
    long double sum = 0;
    for (const double value : group) {
      sum += value;
    }
    sums.push_back(static_cast<double>(mean ? sum / static_cast<long double>(group.size()) : sum));
  }
  return sums;
}

struct Case {
  Shape shape;
  std::vector<int> dims;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {{}, {}},         {{0}, {0}},          {{1}, {0}},          {{7}, {}},
      {{3, 0, 5}, {1}}, {{3, 0, 5}, {0}},    {{2, 3, 5}, {0, 2}}, {{2, 3, 5}, {1}},
      {{2, 3, 5}, {2}}, {{2, 3, 5}, {0, 1}}, {{4, 1, 5}, {1}},    {{2, 3, 4, 5}, {1, 3}},
      {{131, 67}, {0}}, {{131, 67}, {1}},    {{257, 1030}, {0}},  {{3, 257, 2}, {1}},
      {{2, 5003}, {1}}, {{12289}, {}},       {{300, 1}, {0}},
  };
  return kCases;
}

}  // namespace

TEST_SUITE("runtime/ops/reduction") {
  TEST_CASE_TEMPLATE("a sum or mean over any dims equals a naive loop", T, float, double,
                     bfloat16) {
    constexpr DType kDType = kDTypeOf<T>;
    for_each_isa([] {
      for (const Case& c : cases()) {
        CAPTURE(fmt::format("{} over {} dims", c.shape, c.dims.size()));
        const Tensor x = random_tensor(c.shape, 1, 1.0, kDType);
        const double tolerance = testing::tolerance_of(kDType) * 4;
        expect_close(ops::sum(x, c.dims), sums_of(x, c.dims), tolerance);
        expect_close(ops::mean(x, c.dims, true), sums_of(x, c.dims, true), tolerance);
      }
      const Tensor x = column_major(random_tensor({37, 11}, 2, 1.0, kDType));
      const std::vector<int> dims{0};
      expect_close(ops::sum(x, dims), sums_of(x, dims), testing::tolerance_of(kDType) * 4);
    });
  }

  TEST_CASE("the shape of a reduction drops its dims or keeps them as 1") {
    const Tensor x = Tensor::zeros({2, 3, 5});
    const std::vector<int> dims{0, -1};
    CHECK(ops::sum(x, dims).shape() == Shape{3});
    CHECK(ops::sum(x, dims, true).shape() == Shape{1, 3, 1});
    CHECK(ops::sum(x).shape() == Shape{});
    CHECK(ops::max(x, 1).shape() == Shape{2, 5});
    CHECK(ops::argmax(x, -1, true).shape() == Shape{2, 3, 1});
  }

  TEST_CASE("integer sums wrap modulo 2^n") {
    for_each_isa([] {
      CHECK(ops::sum(Tensor::full({300}, 1, DType::UInt8)).item() == 44);
      CHECK(ops::sum(Tensor::full({3, 2}, 2147483647, DType::Int32)).item() == -6);
      const std::vector<int> dims{0};
      CHECK(ops::sum(Tensor::full({300, 2}, 1, DType::UInt8), dims).to_vector() ==
            std::vector<double>{44, 44});
      CHECK(ops::sum(Tensor::full({5}, 3, DType::Int64)).item() == 15);
      CHECK(ops::sum(Tensor::full({2}, 40000, DType::UInt16)).item() == 14464);
    });
  }

  TEST_CASE("the mean of nothing is NaN and its sum 0") {
    const Tensor x = Tensor::zeros({0});
    CHECK(std::isnan(ops::mean(x).item()));
    CHECK(ops::sum(x).item() == 0);
  }

  TEST_CASE_TEMPLATE("max and argmax find the first largest element of every group", T, float,
                     double, bfloat16, std::int64_t, std::int32_t, std::uint8_t) {
    constexpr DType kDType = kDTypeOf<T>;
    for_each_isa([] {
      for (const auto& [shape, dim] : std::vector<std::pair<Shape, int>>{
               {{1}, 0}, {{67}, 0}, {{5, 67}, 1}, {{67, 5}, 0}, {{3, 17, 520}, 1}}) {
        CAPTURE(fmt::format("{} dim {}", shape, dim));
        const Tensor x = Tensor::empty(shape, kDType);
        const Tensor values = random_tensor(shape, 3, 50);
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          Tensor(x).set_item(i, std::abs(values.item(i)));
        }
        const auto groups = groups_of(x, {dim});
        const Tensor largest = ops::max(x, dim);
        const Tensor position = ops::argmax(x, dim);
        for (std::size_t i = 0; i < groups.size(); ++i) {
          const auto best = std::ranges::max_element(groups[i]);
          CHECK(largest.item(static_cast<std::int64_t>(i)) == *best);
          CHECK(position.item(static_cast<std::int64_t>(i)) ==
                static_cast<double>(best - groups[i].begin()));
        }
      }
    });
  }

  TEST_CASE("max and argmax pass NaN on, and -0 is less than +0") {
    for_each_isa([] {
      const Tensor x = Tensor::of({1, kNan, 3, kNan});
      CHECK(std::isnan(ops::max(x, 0).item()));
      CHECK(ops::argmax(x, 0).item() == 1);
      // The same in columns.
      const Tensor columns =
          ops::reshape(Tensor::of({1, 5, kNan, 2, 3, 7, kNan, -kInfinity}), {4, 2});
      CHECK(std::isnan(ops::max(columns, 0).item(0)));
      CHECK(ops::argmax(columns, 0).to_vector() == std::vector<double>{1, 2});
      CHECK(!std::signbit(ops::max(Tensor::of({-0.0, 0.0, -0.0}), 0).item()));
      CHECK(ops::argmax(Tensor::of({-kInfinity, -kInfinity}), 0).item() == 0);
    });
  }

  TEST_CASE("gradients of reductions match finite differences") {
    for (const Case& c : {Case{{2, 3, 5}, {0, 2}}, Case{{2, 3, 5}, {1}}, Case{{7}, {}},
                          Case{{1, 3}, {0}}, Case{{0, 3}, {0}}}) {
      check_gradient([&](const Tensor& x) { return ops::sum(x, c.dims); },
                     random_tensor(c.shape, 4));
      check_gradient([&](const Tensor& x) { return ops::mean(x, c.dims, true); },
                     random_tensor(c.shape, 5));
    }
    for (const int dim : {0, 1, 2}) {
      check_gradient([&](const Tensor& x) { return ops::max(x, dim); },
                     random_tensor({2, 3, 5}, 6));
    }
  }

  TEST_CASE("a tie gives its gradient to the first maximum") {
    Tensor x = Tensor::of({1, 3, 3, 2});
    x.set_requires_grad(true);
    autograd::backward(ops::max(x, 0));
    CHECK(x.grad().to_vector() == std::vector<double>{0, 1, 0, 0});
  }

  TEST_CASE_TEMPLATE("sum_to_shape undoes a broadcast", T, float, double, bfloat16) {
    for_each_isa([] {
      const Tensor x = random_tensor({3, 130, 7}, 7, 1.0, kDTypeOf<T>);
      const double tolerance = testing::tolerance_of(kDTypeOf<T>) * 4;
      expect_close(ops::sum_to_shape(x, {7}), sums_of(x, {0, 1}), tolerance);
      expect_close(ops::sum_to_shape(x, {130, 1}), sums_of(x, {0, 2}), tolerance);
      expect_close(ops::sum_to_shape(x, {1, 130, 7}), sums_of(x, {0}), tolerance);
      expect_close(ops::sum_to_shape(x, {}), sums_of(x, {}), tolerance);
    });
  }

  TEST_CASE("sum_to_shape of the same shape is the tensor itself without history") {
    Tensor x = Tensor::zeros({2, 3});
    x.set_requires_grad(true);
    const Tensor same = ops::sum_to_shape(x, {2, 3});
    CHECK(same.storage() == x.storage());
    CHECK(!same.requires_grad());
    CHECK(!ops::sum_to_shape(x, {3}).requires_grad());
  }

  TEST_CASE("sum_into replaces or adds in the destination's dtype and layout") {
    for_each_isa([] {
      const Tensor x = Tensor::full({3, 4}, 1.5, DType::BFloat16);
      const Tensor slot = Tensor::full({4, 2}, 100, DType::Float32);
      for (const Tensor& destination : {Tensor::full({4}, 100, DType::Float32),
                                        views::squeeze(views::narrow(slot, 1, 1, 1), 1)}) {
        ops::sum_into({destination, true}, x);
        CHECK(destination.to_vector() == std::vector<double>(4, 104.5));
        ops::sum_into({destination, false}, x);
        CHECK(destination.to_vector() == std::vector<double>(4, 4.5));
      }
      CHECK(slot.item(0) == 100);
    });
  }

  TEST_CASE("the bits of a sum do not depend on threads or runs") {
    check_same_bits([] {
      const Tensor x = random_tensor({700, 513}, 9, 1.0, DType::Float32);
      const std::vector<int> rows{1};
      return std::vector{ops::sum(x), ops::sum_to_shape(x, {513}), ops::sum(x, rows)};
    });
  }

  TEST_CASE("reductions count the same memory on meta") {
    check_same_memory([](Device device) {
      Tensor x = Tensor::full({700, 513}, 1, DType::Float32, device);
      x.set_requires_grad(true);
      const Tensor y = ops::sum(ops::sum_to_shape(x, {513}));
      CHECK(y.device() == device);
      autograd::backward(ops::sum(ops::max(x, 1)));
      autograd::backward(ops::mean(ops::transpose(x, 0, 1)));
    });
  }

  TEST_CASE("reductions refuse what they cannot do") {
    const std::vector<int> twice{1, -1};
    const std::vector<int> outside{2};
    const Tensor x = Tensor::zeros({2, 3});
    CHECK_THROWS_WITH_AS(ops::sum(x, twice),
                         doctest::Contains("sum: dim -1 of shape [2, 3] is named twice"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::mean(x, outside),
                         doctest::Contains("mean: dim must be in [-2, 2), got 2"), ShapeError);
    CHECK_THROWS_WITH_AS(ops::mean(Tensor::zeros({2}, DType::Int64)),
                         doctest::Contains("mean: needs float32, float64 or bfloat16, got int64"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(ops::sum(Tensor::zeros({2}, DType::Float16)),
                         doctest::Contains("sum: float16 is for storage"), DTypeError);
    CHECK_THROWS_WITH_AS(ops::max(Tensor::zeros({2, 0}), 1),
                         doctest::Contains("max: shape [2, 0] has no element to choose from"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::argmax(Tensor::zeros({0}), 0), doctest::Contains("argmax: shape [0]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::sum_to_shape(x, {2}),
                         doctest::Contains("sum_to_shape: [2, 3] is no broadcast of [2]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::sum_to_shape(x, {1, 2, 3}),
                         doctest::Contains("sum_to_shape: [2, 3] is no broadcast of [1, 2, 3]"),
                         ShapeError);
  }
}

}  // namespace fsdptrain
