#include "runtime/ops/activation.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/cast.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {
namespace {

using testing::check_gradient;
using testing::expect_close;
using testing::random_tensor;
using Unary = std::function<Tensor(const Tensor&)>;

Tensor gelu_erf(const Tensor& x) {
  return ops::gelu(x);
}
Tensor gelu_tanh(const Tensor& x) {
  return ops::gelu(x, ops::GeluForm::Tanh);
}

struct NamedUnary {
  std::string name;
  Unary op;
  std::function<long double(long double)> formula;
  // Where the inputs lie: middle +- range.
  double middle;
  double range;
};

const std::vector<NamedUnary>& unaries() {
  using L = long double;
  static const std::vector<NamedUnary> all{
      {"exp", ops::exp, [](L x) { return std::exp(x); }, 0, 5},
      {"log", ops::log, [](L x) { return std::log(x); }, 6, 5.9},
      {"tanh", ops::tanh, [](L x) { return std::tanh(x); }, 0, 5},
      {"erf", ops::erf, [](L x) { return std::erf(x); }, 0, 4},
      {"gelu", gelu_erf, [](L x) { return x * std::erfc(-x / std::numbers::sqrt2_v<L>) / 2; }, 0,
       6},
      {"gelu of tanh", gelu_tanh,
       [](L x) {
         const L inner = std::sqrt(2 / std::numbers::pi_v<L>) * (x + 0.044715L * x * x * x);
         return x / 2 * (1 + std::tanh(inner));
       },
       0, 6}};
  return all;
}

}  // namespace

TEST_SUITE("runtime/ops/activation") {
  TEST_CASE_TEMPLATE("values equal the formula in long double", T, float, double, bfloat16) {
    testing::for_each_isa([] {
      for (const NamedUnary& unary : unaries()) {
        CAPTURE(unary.name);
        for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{61}, Shape{7, 11}}) {
          const Tensor x = ops::cast(
              ops::affine(random_tensor(shape, 1, unary.range), 1, unary.middle), kDTypeOf<T>);
          std::vector<double> expected;
          for (const double value : x.to_vector()) {
            expected.push_back(static_cast<double>(unary.formula(value)));
          }
          const Tensor y = unary.op(x);
          CHECK(y.shape() == x.shape());
          CHECK(y.dtype() == x.dtype());
          expect_close(y, expected);
          if (x.dims() == 2) {
            expect_close(unary.op(testing::column_major(x)), expected);
          }
        }
      }
    });
  }

  TEST_CASE("gradients match finite differences") {
    for (const NamedUnary& unary : unaries()) {
      CAPTURE(unary.name);
      check_gradient(unary.op,
                     ops::affine(random_tensor({23}, 2, unary.range * 0.9), 1, unary.middle));
    }
    check_gradient(gelu_erf, Tensor::of({-3, -0.5, 0, 0.5, 3}, DType::Float64));
    check_gradient(gelu_tanh, Tensor::of({-3, -0.5, 0, 0.5, 3}, DType::Float64));
  }

  TEST_CASE("gelu has its limits, and a gradient there") {
    for (const auto& op : {gelu_erf, gelu_tanh}) {
      Tensor x = Tensor::of({-100, 0, 100});
      x.set_requires_grad(true);
      const Tensor y = op(x);
      CHECK(y.to_vector() == std::vector<double>{0, 0, 100});
      autograd::backward(y, {.grad_output = Tensor::of({1, 1, 1})});
      CHECK(x.grad().to_vector() == std::vector<double>{0, 0.5, 1});
      CHECK(std::isnan(op(Tensor::of({std::nan("")})).item()));
    }
  }

  TEST_CASE("integers and storage dtypes are refused by name") {
    CHECK_THROWS_WITH_AS(ops::gelu(Tensor::zeros({1}, DType::Int64)),
                         doctest::Contains("gelu: needs float32, float64 or bfloat16, got int64"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(ops::exp(Tensor::zeros({1}, DType::Float16)),
                         doctest::Contains("exp: needs float32"), DTypeError);
    CHECK_THROWS_WITH_AS(ops::tanh(Tensor::zeros({1}, DType::UInt8)),
                         doctest::Contains("tanh: needs float32"), DTypeError);
  }

  TEST_CASE("the same bits for any number of threads, the same bytes on meta") {
    const Tensor x = random_tensor({50021}, 3, 4, DType::Float32);
    testing::check_same_bits([&] {
      return std::vector<Tensor>{gelu_erf(x), gelu_tanh(x), ops::exp(x), ops::erf(x)};
    });
    testing::check_same_memory([](Device device) {
      Tensor a = Tensor::zeros({1000}, DType::BFloat16, device);
      a.set_requires_grad(true);
      autograd::backward(ops::tanh(ops::gelu(a)),
                         {.grad_output = Tensor::zeros({1000}, DType::BFloat16, device)});
    });
  }
}

}  // namespace fsdptrain
