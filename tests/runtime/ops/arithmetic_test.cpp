#include "runtime/ops/arithmetic.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {
namespace {

using testing::check_gradient;
using testing::column_major;
using testing::random_tensor;
using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;
using Values = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

struct NamedBinary {
  std::string name;
  Binary op;
  std::function<double(double, double)> formula;
};

const std::vector<NamedBinary>& binaries() {
  static const std::vector<NamedBinary> all{
      {"add", ops::add, [](double a, double b) { return a + b; }},
      {"subtract", ops::subtract, [](double a, double b) { return a - b; }},
      {"multiply", ops::multiply, [](double a, double b) { return a * b; }},
      {"divide", ops::divide, [](double a, double b) { return a / b; }},
      {"maximum", ops::maximum, [](double a, double b) { return std::max(a, b); }},
      {"minimum", ops::minimum, [](double a, double b) { return std::min(a, b); }}};
  return all;
}

// The same values with every element repeated in memory.
Tensor strided(const Tensor& x) {
  const Tensor wide = Tensor::full({x.numel() * 2 + 1}, 99, x.dtype());
  Strides strides = Strides::contiguous(x.shape());
  for (int dim = 0; dim < x.dims(); ++dim) {
    strides[dim] *= 2;
  }
  Tensor sparse = wide.alias(x.shape(), strides, 1);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    sparse.set_item(i, x.item(i));
  }
  return sparse;
}

// op(a, b) element by element at the rounding of the dtype.
void check_broadcast(const NamedBinary& binary, const Tensor& a, const Tensor& b) {
  const Tensor y = binary.op(a, b);
  const Shape shape = broadcast_shapes("test", a.shape(), b.shape());
  REQUIRE(y.shape() == shape);
  REQUIRE(y.dtype() == a.dtype());
  const Tensor left = views::expand(a, shape);
  const Tensor right = views::expand(b, shape);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const double exact = binary.formula(left.item(i), right.item(i));
    // Exact in double for 24-bit operands but for a second rounding of quotients in float64.
    wrong += y.item(i) != Tensor::of({exact}, a.dtype()).item();
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_SUITE("runtime/ops/arithmetic") {
  TEST_CASE_TEMPLATE("arithmetic broadcasts any layout and rounds once", T, float, double,
                     bfloat16) {
    testing::for_each_isa([] {
      constexpr DType kDType = kDTypeOf<T>;
      for (const NamedBinary& binary : binaries()) {
        CAPTURE(binary.name);
        for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{}, {}},
                                                                       {{1}, {7}},
                                                                       {{0}, {1}},
                                                                       {{5, 7}, {7}},
                                                                       {{5, 1}, {1, 7}},
                                                                       {{2, 3, 4}, {3, 1}},
                                                                       {{3, 0, 2}, {2}},
                                                                       {{61}, {61}}}) {
          CAPTURE(fmt::format("{} and {}", a, b));
          const Tensor x = random_tensor(a, 1, 8, kDType);
          const Tensor y = random_tensor(b, 2, 8, kDType);
          check_broadcast(binary, x, y);
          check_broadcast(binary, strided(x), y);
          check_broadcast(binary, y, strided(x));
        }
        const Tensor matrix = random_tensor({11, 13}, 3, 8, kDType);
        check_broadcast(binary, column_major(matrix), matrix);
        check_broadcast(binary, matrix, random_tensor({}, 4, 8, kDType));
      }
    });
  }

  TEST_CASE_TEMPLATE("integers wrap modulo 2^n", T, std::int64_t, std::int32_t, std::uint16_t,
                     std::uint8_t) {
    testing::for_each_isa([] {
      using Unsigned = std::make_unsigned_t<T>;
      const T lowest = std::numeric_limits<T>::min();
      const T highest = std::numeric_limits<T>::max();
      const std::vector<T> left{highest, lowest, T(3), T(200), highest, T(0)};
      const std::vector<T> right{T(1), T(1), T(5), T(100), highest, lowest};
      const Tensor a = Tensor::from<T>(left, {6});
      const Tensor b = Tensor::from<T>(right, {6});
      const auto sum = ops::add(a, b);
      const auto difference = ops::subtract(a, b);
      const auto product = ops::multiply(a, b);
      const auto negative = ops::negate(b);
      const auto larger = ops::maximum(a, b);
      const auto smaller = ops::minimum(a, b);
      for (std::size_t i = 0; i < 6; ++i) {
        const auto x = static_cast<std::uint64_t>(left[i]);
        const auto y = static_cast<std::uint64_t>(right[i]);
        CHECK(sum.template values<T>()[i] == static_cast<T>(static_cast<Unsigned>(x + y)));
        CHECK(difference.template values<T>()[i] == static_cast<T>(static_cast<Unsigned>(x - y)));
        CHECK(product.template values<T>()[i] == static_cast<T>(static_cast<Unsigned>(x * y)));
        CHECK(negative.template values<T>()[i] == static_cast<T>(static_cast<Unsigned>(0 - y)));
        CHECK(larger.template values<T>()[i] == std::max(left[i], right[i]));
        CHECK(smaller.template values<T>()[i] == std::min(left[i], right[i]));
      }
    });
  }

  TEST_CASE("extrema propagate NaN and order the zeros") {
    const Tensor a = Tensor::of({kNaN, 1, 0.0, -0.0, kInfinity, -kInfinity});
    const Tensor b = Tensor::of({1, kNaN, -0.0, 0.0, 1, 1});
    const Tensor larger = ops::maximum(a, b);
    const Tensor smaller = ops::minimum(a, b);
    CHECK(std::isnan(larger.item(0)));
    CHECK(std::isnan(larger.item(1)));
    CHECK(std::isnan(smaller.item(0)));
    CHECK(std::isnan(smaller.item(1)));
    for (const std::int64_t i : {2, 3}) {
      CHECK_FALSE(std::signbit(larger.item(i)));
      CHECK(std::signbit(smaller.item(i)));
    }
    CHECK(larger.item(4) == kInfinity);
    CHECK(smaller.item(5) == -kInfinity);
  }

  TEST_CASE("functions of one operand have their values") {
    const Tensor x = Tensor::of({4, 2.25, 100}, DType::Float64);
    CHECK(ops::negate(x).to_vector() == Values{-4, -2.25, -100});
    CHECK(ops::affine(x, 2, -1).to_vector() == Values{7, 3.5, 199});
    CHECK(ops::scale(x, 0.5).to_vector() == Values{2, 1.125, 50});
    CHECK(ops::square(x).to_vector() == Values{16, 5.0625, 10000});
    CHECK(ops::sqrt(x).to_vector() == Values{2, 1.5, 10});
    testing::expect_close(ops::rsqrt(x), {0.5, 1 / 1.5, 0.1});
    CHECK(ops::square(Tensor::zeros({0, 3})).shape() == Shape{0, 3});
    const Tensor half = Tensor::of({1.5, -2}, DType::BFloat16);
    CHECK(ops::square(half).to_vector() == Values{2.25, 4});
    CHECK(ops::scale(half, 1.0 / 3).item() == Tensor::of({0.5}, DType::BFloat16).item());
  }

  TEST_CASE("comparisons give uint8 and are false for NaN, but for not_equal") {
    const Tensor a = Tensor::of({1, 2, 3, kNaN});
    const Tensor b = Tensor::of({2, 2, 2, kNaN});
    CHECK(ops::equal(a, b).to_vector() == Values{0, 1, 0, 0});
    CHECK(ops::not_equal(a, b).to_vector() == Values{1, 0, 1, 1});
    CHECK(ops::less(a, b).to_vector() == Values{1, 0, 0, 0});
    CHECK(ops::less_equal(a, b).to_vector() == Values{1, 1, 0, 0});
    CHECK(ops::greater(a, b).to_vector() == Values{0, 0, 1, 0});
    CHECK(ops::greater_equal(a, b).to_vector() == Values{0, 1, 1, 0});
    CHECK(ops::equal(a, b).dtype() == DType::UInt8);
    for (const DType dtype : {DType::Int64, DType::Int32, DType::UInt16, DType::UInt8,
                              DType::BFloat16, DType::Float64}) {
      CHECK(ops::less(Tensor::of({1, 2, 3}, dtype), Tensor::of({2}, dtype)).to_vector() ==
            Values{1, 0, 0});
    }
    Tensor x = Tensor::of({1, 2});
    x.set_requires_grad(true);
    CHECK_FALSE(ops::less(x, x).requires_grad());
  }

  TEST_CASE("where chooses by a condition of any broadcast shape") {
    const Tensor condition = Tensor::of({0, 1, 7}, DType::UInt8);
    const Tensor a = Tensor::of({1, 2}).alias({2, 1}, {1, 1}, 0);
    const Tensor b = Tensor::of({-1, -2, -3});
    const Tensor y = ops::where(condition, a, b);
    CHECK(y.shape() == Shape{2, 3});
    CHECK(y.to_vector() == Values{-1, 1, 1, -1, 2, 2});
    // What is not chosen may be anything.
    CHECK(
        ops::where(condition, Tensor::of({kNaN, 1, 2}), Tensor::of({3, kNaN, kNaN})).to_vector() ==
        Values{3, 1, 2});
    CHECK(ops::where(condition, Tensor::of({5}, DType::Int64), Tensor::of({6}, DType::Int64))
              .to_vector() == Values{6, 5, 5});
    CHECK_THROWS_WITH_AS(ops::where(Tensor::of({1}), a, b),
                         doctest::Contains("where: the condition must be uint8, got float32"),
                         DTypeError);
  }

  TEST_CASE("gradients match finite differences, broadcast operands included") {
    for (const NamedBinary& binary : binaries()) {
      CAPTURE(binary.name);
      const auto op = [&](const std::vector<Tensor>& in) { return binary.op(in[0], in[1]); };
      for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{3}, {3}},
                                                                     {{2, 3}, {3}},
                                                                     {{3}, {2, 3}},
                                                                     {{2, 1, 3}, {4, 1}},
                                                                     {{}, {2}},
                                                                     {{0, 3}, {3}}}) {
        // Away from 0 and from ties.
        const Tensor x = ops::affine(random_tensor(a, 5), 1, 3);
        const Tensor y = ops::affine(random_tensor(b, 6), 1, 3.001);
        check_gradient(op, {x, y});
        check_gradient(op, {ops::scale(x, -1), y});
      }
      check_gradient([&](const Tensor& x) { return binary.op(x, Tensor::of({2.5}, x.dtype())); },
                     random_tensor({3}, 7, 5));
      check_gradient([&](const Tensor& x) { return binary.op(Tensor::of({2.5}, x.dtype()), x); },
                     ops::affine(random_tensor({3}, 8, 5), 1, 9));
    }
    const Tensor x = ops::affine(random_tensor({3, 2}, 9), 1, 2);
    check_gradient(ops::negate, x);
    check_gradient(ops::square, x);
    check_gradient(ops::sqrt, x);
    check_gradient(ops::rsqrt, x);
    check_gradient([](const Tensor& t) { return ops::affine(t, -3, 7); }, x);
    const Tensor condition = Tensor::of({1, 0}, DType::UInt8);
    check_gradient(
        [&](const std::vector<Tensor>& in) { return ops::where(condition, in[0], in[1]); },
        {x, random_tensor({1}, 10)});
  }

  TEST_CASE("a tie of extrema gives its gradient to the first operand") {
    for (const Binary& op : {Binary(ops::maximum), Binary(ops::minimum)}) {
      Tensor a = Tensor::of({2});
      Tensor b = Tensor::of({2});
      a.set_requires_grad(true);
      b.set_requires_grad(true);
      autograd::backward(op(a, b));
      CHECK(a.grad().item() == 1);
      CHECK(b.grad().item() == 0);
    }
  }

  TEST_CASE("a factor is saved only where the other needs its gradient") {
    Tensor a = Tensor::of({1, 2});
    const Tensor b = Tensor::of({3, 4});
    a.set_requires_grad(true);
    const Tensor y = ops::multiply(a, b);
    a.set_item(0, 9);
    CHECK_NOTHROW(autograd::backward(y, {.grad_output = Tensor::of({1, 1})}));
    CHECK(a.grad().to_vector() == Values{3, 4});
  }

  TEST_CASE("operands that do not fit are named") {
    const Tensor a = Tensor::zeros({2});
    CHECK_THROWS_WITH_AS(ops::add(a, Tensor::zeros({3})),
                         doctest::Contains("add: shapes [2] and [3] do not broadcast"), ShapeError);
    CHECK_THROWS_WITH_AS(ops::multiply(a, Tensor::zeros({2}, DType::BFloat16)),
                         doctest::Contains("multiply: dtypes float32 and bfloat16 differ"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(ops::subtract(a, Tensor::zeros({2}, DType::Float32, Device::meta())),
                         doctest::Contains("subtract: devices cpu and meta differ"), DeviceError);
    const Tensor half = Tensor::zeros({2}, DType::Float16);
    CHECK_THROWS_WITH_AS(ops::add(half, half), doctest::Contains("add: float16 is for storage"),
                         DTypeError);
    CHECK_THROWS_AS(ops::where(Tensor::zeros({2}, DType::UInt8), half, half), DTypeError);
    const Tensor whole = Tensor::zeros({2}, DType::Int32);
    CHECK_THROWS_WITH_AS(ops::divide(whole, whole),
                         doctest::Contains("divide: needs float32, float64 or bfloat16, got int32"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(ops::sqrt(whole), doctest::Contains("sqrt: needs float32"), DTypeError);
    CHECK_THROWS_AS(ops::affine(whole, 1, 1), DTypeError);
  }

  TEST_CASE("results on meta have shape, dtype and memory") {
    testing::check_same_memory([](Device device) {
      Tensor a = Tensor::zeros({50, 1}, DType::Float32, device);
      Tensor b = Tensor::zeros({70}, DType::Float32, device);
      a.set_requires_grad(true);
      b.set_requires_grad(true);
      Tensor y = ops::maximum(ops::divide(a, ops::affine(b, 1, 1)), ops::square(b));
      CHECK(y.shape() == Shape{50, 70});
      autograd::backward(ops::where(ops::less(a, b), y, ops::negate(a)),
                         {.grad_output = Tensor::zeros({50, 70}, DType::Float32, device)});
    });
  }

  TEST_CASE("elementwise results have the same bits for any number of threads") {
    const Tensor a = random_tensor({311, 211}, 1, 4, DType::Float32);
    const Tensor b = random_tensor({211}, 2, 4, DType::Float32);
    testing::check_same_bits([&] {
      return std::vector<Tensor>{ops::divide(a, b), ops::rsqrt(ops::square(a)),
                                 ops::maximum(ops::contiguous(a), b)};
    });
  }
}

}  // namespace fsdptrain
