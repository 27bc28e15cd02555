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
#include "runtime/ops/view.h"
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
       0, 6},
      {"silu", ops::silu, [](L x) { return x / (1 + std::exp(-x)); }, 0, 20}};
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

  TEST_CASE_TEMPLATE("silu has its limits, and a gradient there", T, float, double, bfloat16) {
    testing::for_each_isa([] {
      const double infinity = std::numeric_limits<double>::infinity();
      const Tensor x = Tensor::of({-infinity, -3e38, -1000, 0, 1000, 3e38, infinity}, kDTypeOf<T>)
                           .set_requires_grad(true);
      const Tensor y = ops::silu(x);
      const double large = x.item(5);
      const double thousand = x.item(4);
      CHECK(y.to_vector() == std::vector<double>{0, 0, 0, 0, thousand, large, infinity});
      autograd::backward(y, {.grad_output = Tensor::full({7}, 1, kDTypeOf<T>)});
      CHECK(x.grad().to_vector() == std::vector<double>{0, 0, 0, 0.5, 1, 1, 1});
      CHECK(std::isnan(ops::silu(Tensor::of({std::nan("")}, kDTypeOf<T>)).item()));
    });
    // Where exp(-x) overflows in float32 the result is still a normal number.
    CHECK(ops::silu(Tensor::of({-88.9})).item() ==
          doctest::Approx(-88.9 * std::exp(-88.9)).epsilon(1e-5).scale(0));
  }

  TEST_CASE_TEMPLATE("silu_mul is silu times its other factor, rounded once", T, float, double,
                     bfloat16) {
    testing::for_each_isa([] {
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{61}, Shape{7, 11}}) {
        const Tensor gate = random_tensor(shape, 1, 6, kDTypeOf<T>);
        const Tensor up = random_tensor(shape, 2, 3, kDTypeOf<T>);
        std::vector<double> expected;
        for (std::int64_t i = 0; i < gate.numel(); ++i) {
          const double x = gate.item(i);
          expected.push_back(x / (1 + std::exp(-x)) * up.item(i));
        }
        const Tensor y = ops::silu_mul(gate, up);
        CHECK(y.shape() == shape);
        CHECK(y.dtype() == kDTypeOf<T>);
        expect_close(y, expected);
        if (shape.dims() == 2) {
          expect_close(ops::silu_mul(testing::column_major(gate), up), expected);
        }
      }
    });
  }

  TEST_CASE("gradients of silu_mul match finite differences, of one factor or both") {
    const Tensor factor = random_tensor({3, 5}, 3, 3);
    check_gradient([](const std::vector<Tensor>& in) { return ops::silu_mul(in[0], in[1]); },
                   {random_tensor({3, 5}, 1, 4), random_tensor({3, 5}, 2, 2)});
    check_gradient([&](const Tensor& x) { return ops::silu_mul(x, factor); },
                   random_tensor({3, 5}, 1, 4));
    check_gradient([&](const Tensor& x) { return ops::silu_mul(factor, x); },
                   random_tensor({3, 5}, 1, 4));
    check_gradient([](const Tensor& x) { return ops::packed_silu_mul(x); },
                   random_tensor({2, 3, 10}, 1, 4));
    check_gradient([](const Tensor& x) { return ops::packed_silu_mul(ops::transpose(x, 0, 1)); },
                   random_tensor({6, 3}, 1, 4));
  }

  TEST_CASE("packed_silu_mul gives the bits of silu_mul on the halves, and one gradient") {
    Tensor packed = random_tensor({5, 3, 2 * 17}, 1, 4, DType::Float32);
    packed.set_requires_grad(true);
    const Tensor dy = random_tensor({5, 3, 17}, 2, 1, DType::Float32);
    const Tensor once = ops::packed_silu_mul(packed);
    autograd::backward(once, {.grad_output = dy});
    const std::vector<double> gradient = packed.grad().to_vector();
    packed.zero_grad();
    const Tensor apart =
        ops::silu_mul(ops::narrow(packed, 2, 0, 17), ops::narrow(packed, 2, 17, 17));
    CHECK(once.to_vector() == apart.to_vector());
    autograd::backward(apart, {.grad_output = dy});
    CHECK(packed.grad().to_vector() == gradient);
  }

  TEST_CASE("silu_mul refuses what does not fit, by name") {
    const Tensor x = Tensor::zeros({2, 3});
    CHECK_THROWS_WITH_AS(ops::silu_mul(x, Tensor::zeros({3})),
                         doctest::Contains("silu_mul: gate of shape [2, 3] and up of shape [3]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::silu_mul(x, Tensor::zeros({2, 3}, DType::Float64)),
                         doctest::Contains("silu_mul: dtypes float32 and float64 differ"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(ops::silu_mul(x, Tensor::zeros({2, 3}, DType::Float32, Device::meta())),
                         doctest::Contains("silu_mul: devices cpu and meta differ"), DeviceError);
    CHECK_THROWS_WITH_AS(
        ops::packed_silu_mul(x),
        doctest::Contains("silu_mul: packed gates and ups must be [..., 2 * features], got [2, 3]"),
        ShapeError);
    CHECK_THROWS_AS(ops::packed_silu_mul(Tensor::zeros({})), ShapeError);
    CHECK_THROWS_WITH_AS(ops::silu(Tensor::zeros({1}, DType::Int64)),
                         doctest::Contains("silu: needs float32, float64 or bfloat16, got int64"),
                         DTypeError);
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
      const Tensor packed = random_tensor({129, 514}, 4, 4, DType::Float32).set_requires_grad(true);
      const Tensor y = ops::packed_silu_mul(packed);
      autograd::backward(y, {.grad_output = random_tensor({129, 257}, 5, 1, DType::Float32)});
      return std::vector<Tensor>{gelu_erf(x),  gelu_tanh(x), ops::exp(x),  ops::erf(x),
                                 ops::silu(x), y.detach(),   packed.grad()};
    });
    testing::check_same_memory([](Device device) {
      Tensor a = Tensor::zeros({1000}, DType::BFloat16, device);
      a.set_requires_grad(true);
      autograd::backward(ops::tanh(ops::gelu(a)),
                         {.grad_output = Tensor::zeros({1000}, DType::BFloat16, device)});
      autograd::backward(
          ops::silu_mul(ops::silu(a), ops::packed_silu_mul(ops::cat(std::vector{a, a}, 0))),
          {.grad_output = Tensor::zeros({1000}, DType::BFloat16, device)});
    });
  }
}

}  // namespace fsdptrain
