#include "runtime/ops/softmax.h"

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {
namespace {

using testing::expect_close;
using testing::for_each_isa;
using testing::random_tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// exp(x_i) / sum(exp(x)) row by row, or its logarithm.
std::vector<double> naive(const Tensor& x, bool log) {
  std::vector<double> result;
  const std::int64_t width = x.size(-1);
  long double sum = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (i % width == 0) {
      sum = 0;
      for (std::int64_t j = i; j < i + width; ++j) {
        sum += std::exp(static_cast<long double>(x.item(j)));
      }
    }
    const long double value = static_cast<long double>(x.item(i));
    result.push_back(static_cast<double>(log ? value - std::log(sum) : std::exp(value) / sum));
  }
  return result;
}

}  // namespace

TEST_SUITE("runtime/ops/softmax") {
  TEST_CASE_TEMPLATE("softmax and log_softmax equal their definition", T, float, double, bfloat16) {
    constexpr DType kDType = kDTypeOf<T>;
    for_each_isa([] {
      for (const Shape& shape : {Shape{0}, Shape{1}, Shape{17}, Shape{3, 0}, Shape{0, 3},
                                 Shape{2, 3, 5}, Shape{5, 67}, Shape{2, 2053}}) {
        CAPTURE(fmt::format("{}", shape));
        const Tensor x = random_tensor(shape, 1, 9, kDType);
        const double tolerance = testing::tolerance_of(kDType) * 2;
        expect_close(ops::softmax(x), naive(x, false), tolerance);
        expect_close(ops::log_softmax(x), naive(x, true), tolerance);
      }
      const Tensor strided = testing::column_major(random_tensor({7, 13}, 2, 9, kDType));
      expect_close(ops::softmax(strided), naive(strided, false));
    });
  }

  TEST_CASE("softmax of large values does not overflow") {
    for_each_isa([] {
      expect_close(ops::softmax(Tensor::of({1e30, 1e30, -1e30})), {0.5, 0.5, 0});
      expect_close(ops::log_softmax(Tensor::of({1e4, 0})), {0, -1e4});
    });
  }

  TEST_CASE("minus infinity has probability 0, and a row of nothing else is NaN") {
    for_each_isa([] {
      const Tensor x = ops::reshape(Tensor::of({0, -kInfinity, 0, -kInfinity, -kInfinity,
                                                -kInfinity, 1, kNan, 1, 1, 2, kInfinity}),
                                    {4, 3});
      const Tensor y = ops::softmax(x);
      expect_close(y, {0.5, 0, 0.5, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan});
      const double half = std::log(0.5);
      expect_close(ops::log_softmax(x),
                   {half, -kInfinity, half, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan});
    });
  }

  TEST_CASE("a whole block of minus infinity or NaN in a long row") {
    for_each_isa([] {
      Tensor x = Tensor::full({3000}, -kInfinity);
      x.set_item(2999, 5);
      CHECK(ops::softmax(x).item(2999) == 1);
      CHECK(ops::softmax(x).item(0) == 0);
      for (std::int64_t i = 0; i < 1024; ++i) {
        x.set_item(i, kNan);
      }
      CHECK(std::isnan(ops::softmax(x).item(2999)));
      x = Tensor::full({3000}, 0);
      x.set_item(1500, kNan);
      CHECK(std::isnan(ops::log_softmax(x).item(2999)));
    });
  }

  TEST_CASE("gradients of softmax and log_softmax match finite differences") {
    for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{2, 2, 17}, Shape{2, 0}}) {
      testing::check_gradient(ops::softmax, random_tensor(shape, 3, 2));
      testing::check_gradient(ops::log_softmax, random_tensor(shape, 4, 2));
    }
    testing::check_gradient([](const Tensor& x) { return ops::softmax(ops::transpose(x, 0, 1)); },
                            random_tensor({5, 3}, 5, 2));
  }

  TEST_CASE_TEMPLATE("the backward of every dtype equals its formula", T, float, bfloat16) {
    for_each_isa([] {
      Tensor x = random_tensor({3, 1031}, 6, 2, kDTypeOf<T>);
      x.set_requires_grad(true);
      const Tensor y = ops::softmax(x);
      const Tensor dy = random_tensor(x.shape(), 7, 1, kDTypeOf<T>);
      autograd::backward(y, {.grad_output = dy});
      std::vector<double> expected;
      for (std::int64_t row = 0; row < 3; ++row) {
        double dot = 0;
        for (std::int64_t i = row * 1031; i < (row + 1) * 1031; ++i) {
          dot += dy.item(i) * y.item(i);
        }
        for (std::int64_t i = row * 1031; i < (row + 1) * 1031; ++i) {
          expected.push_back(y.item(i) * (dy.item(i) - dot));
        }
      }
      expect_close(x.grad(), expected);
    });
  }

  TEST_CASE("the bits of softmax do not depend on threads or runs") {
    testing::check_same_bits([] {
      Tensor x = random_tensor({53, 1301}, 8, 5, DType::Float32);
      x.set_requires_grad(true);
      const Tensor y = ops::softmax(x);
      autograd::backward(y, {.grad_output = random_tensor(x.shape(), 9, 1, DType::Float32)});
      return std::vector{y, x.grad(), ops::log_softmax(x)};
    });
  }

  TEST_CASE("softmax counts the same memory on meta") {
    testing::check_same_memory([](Device device) {
      Tensor x = Tensor::full({33, 17}, 1, DType::Float32, device);
      x.set_requires_grad(true);
      autograd::backward(ops::sum(ops::log_softmax(ops::softmax(ops::transpose(x, 0, 1)))));
    });
  }

  TEST_CASE("softmax refuses what it cannot do") {
    CHECK_THROWS_WITH_AS(ops::softmax(Tensor::zeros({})),
                         doctest::Contains("softmax: needs at least one dimension, got shape []"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(
        ops::log_softmax(Tensor::zeros({3}, DType::Float16)),
        doctest::Contains("log_softmax: needs float32, float64 or bfloat16, got float16"),
        DTypeError);
  }
}

}  // namespace fsdptrain
