#include "runtime/ops/norm.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"
#include "tests/support/slots.h"

namespace fsdptrain {
namespace {

using testing::expect_close;
using testing::for_each_isa;
using testing::give_slot;
using testing::random_tensor;

constexpr double kEps = 1e-5;

// (x - mean) / sqrt(variance + eps) row by row.
std::vector<double> normalized(const Tensor& x) {
  const std::int64_t width = x.size(-1);
  std::vector<double> result;
  for (std::int64_t row = 0; width > 0 && row < x.numel() / width; ++row) {
    long double mean = 0;
    long double variance = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      mean += static_cast<long double>(x.item(row * width + i)) / width;
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const long double deviation = x.item(row * width + i) - mean;
      variance += deviation * deviation / width;
    }
    for (std::int64_t i = 0; i < width; ++i) {
      result.push_back(
          static_cast<double>((x.item(row * width + i) - mean) / std::sqrt(variance + kEps)));
    }
  }
  return result;
}

// x / sqrt(mean(x^2) + eps) row by row.
std::vector<double> by_rms(const Tensor& x) {
  const std::int64_t width = x.size(-1);
  std::vector<double> result;
  for (std::int64_t row = 0; width > 0 && row < x.numel() / width; ++row) {
    long double squares = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const long double value = x.item(row * width + i);
      squares += value * value;
    }
    for (std::int64_t i = 0; i < width; ++i) {
      result.push_back(
          static_cast<double>(x.item(row * width + i) / std::sqrt(squares / width + kEps)));
    }
  }
  return result;
}

std::vector<double> affine(std::vector<double> values, const Tensor& weight, const Tensor& bias) {
  const std::int64_t width = weight.numel();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % width;
    values[i] = values[i] * weight.item(column) + (bias.defined() ? bias.item(column) : 0);
  }
  return values;
}

}  // namespace

TEST_SUITE("runtime/ops/norm") {
  TEST_CASE_TEMPLATE("layer_norm equals its definition", T, float, double, bfloat16) {
    constexpr DType kDType = kDTypeOf<T>;
    for_each_isa([] {
      for (const Shape& shape : {Shape{0}, Shape{1}, Shape{17}, Shape{3, 0}, Shape{0, 3},
                                 Shape{2, 3, 5}, Shape{5, 67}, Shape{2, 2053}}) {
        CAPTURE(fmt::format("{}", shape));
        const Tensor x = random_tensor(shape, 1, 3, kDType);
        const Tensor weight = random_tensor({shape.back()}, 2, 1, kDType);
        const Tensor bias = random_tensor({shape.back()}, 3, 1, kDType);
        const double tolerance = testing::tolerance_of(kDType) * 4;
        expect_close(ops::layer_norm(x, weight, bias, kEps), affine(normalized(x), weight, bias),
                     tolerance);
        expect_close(ops::layer_norm(x, weight, {}, kEps), affine(normalized(x), weight, {}),
                     tolerance);
      }
      const Tensor x = testing::column_major(random_tensor({7, 13}, 4, 3, kDType));
      const Tensor weight = random_tensor({13}, 2, 1, kDType);
      expect_close(ops::layer_norm(x, weight, {}, kEps), affine(normalized(x), weight, {}),
                   testing::tolerance_of(kDType) * 4);
    });
  }

  TEST_CASE("add_layer_norm gives the bits of add and layer_norm, with their gradients") {
    for_each_isa([] {
      for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
        for (const Shape& shape : {Shape{3, 5, 37}, Shape{0, 7}, Shape{1}}) {
          const Tensor x = random_tensor(shape, 1, 1, dtype);
          const Tensor residual = random_tensor(shape, 2, 1, dtype);
          const Tensor weight = random_tensor({shape.back()}, 3, 1, dtype);
          const Tensor bias = random_tensor({shape.back()}, 4, 1, dtype);
          const auto [sum, normed] = ops::add_layer_norm(x, residual, weight, bias, kEps);
          CHECK(sum.to_vector() == ops::add(x, residual).to_vector());
          CHECK(normed.to_vector() == ops::layer_norm(sum, weight, bias, kEps).to_vector());
        }
      }
    });
    // Both outputs in use, and each alone.
    const Tensor factor = random_tensor({4}, 3);
    testing::check_gradient(
        [&](const std::vector<Tensor>& in) {
          return ops::add_layer_norm(ops::transpose(in[0], 0, 1), in[1], factor, {}, kEps).sum;
        },
        {random_tensor({4, 3}, 1), random_tensor({3, 4}, 2)});
    for (const bool both : {false, true}) {
      testing::check_gradient(
          [both](const std::vector<Tensor>& in) {
            const auto [sum, normed] =
                ops::add_layer_norm(ops::transpose(in[0], 0, 1), in[1], in[2], in[3], kEps);
            return both ? ops::add(sum, normed) : normed;
          },
          {random_tensor({4, 3}, 1), random_tensor({3, 4}, 2), factor, random_tensor({4}, 4)});
    }
    CHECK_THROWS_WITH_AS(ops::add_layer_norm(Tensor::zeros({2, 3}), Tensor::zeros({3}),
                                             Tensor::zeros({3}), {}, kEps),
                         doctest::Contains("add_layer_norm: x of shape [2, 3] and residual of "
                                           "shape [3]"),
                         ShapeError);
  }

  TEST_CASE_TEMPLATE("rms_norm equals its definition", T, float, double, bfloat16) {
    constexpr DType kDType = kDTypeOf<T>;
    for_each_isa([] {
      const double tolerance = testing::tolerance_of(kDType) * 4;
      for (const Shape& shape : {Shape{0}, Shape{1}, Shape{17}, Shape{3, 0}, Shape{0, 3},
                                 Shape{2, 3, 5}, Shape{5, 67}, Shape{2, 2053}}) {
        CAPTURE(fmt::format("{}", shape));
        const Tensor x = random_tensor(shape, 1, 3, kDType);
        const Tensor weight = random_tensor({shape.back()}, 2, 1, kDType);
        expect_close(ops::rms_norm(x, weight, kEps), affine(by_rms(x), weight, {}), tolerance);
      }
      const Tensor x = testing::column_major(random_tensor({7, 13}, 4, 3, kDType));
      const Tensor weight = random_tensor({13}, 2, 1, kDType);
      expect_close(ops::rms_norm(x, weight, kEps), affine(by_rms(x), weight, {}), tolerance);
    });
    // Rows of nothing but zeros stay so.
    const Tensor zeros = Tensor::zeros({2, 3}, kDType);
    CHECK(ops::rms_norm(zeros, Tensor::full({3}, 1, kDType), kEps).to_vector() ==
          zeros.to_vector());
  }

  TEST_CASE("add_rms_norm gives the bits of add and rms_norm, with their gradients") {
    for_each_isa([] {
      for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
        for (const Shape& shape : {Shape{3, 5, 37}, Shape{0, 7}, Shape{1}}) {
          const Tensor x = random_tensor(shape, 1, 1, dtype);
          const Tensor residual = random_tensor(shape, 2, 1, dtype);
          const Tensor weight = random_tensor({shape.back()}, 3, 1, dtype);
          const auto [sum, normed] = ops::add_rms_norm(x, residual, weight, kEps);
          CHECK(sum.to_vector() == ops::add(x, residual).to_vector());
          CHECK(normed.to_vector() == ops::rms_norm(sum, weight, kEps).to_vector());
        }
      }
    });
    for (const bool both : {false, true}) {
      testing::check_gradient(
          [both](const std::vector<Tensor>& in) {
            const auto [sum, normed] =
                ops::add_rms_norm(ops::transpose(in[0], 0, 1), in[1], in[2], kEps);
            return both ? ops::add(sum, normed) : normed;
          },
          {random_tensor({4, 3}, 1), random_tensor({3, 4}, 2), random_tensor({4}, 3)});
    }
    CHECK_THROWS_WITH_AS(
        ops::add_rms_norm(Tensor::zeros({2, 3}), Tensor::zeros({3}), Tensor::zeros({3}), kEps),
        doctest::Contains("add_rms_norm: x of shape [2, 3] and residual of shape [3]"), ShapeError);
  }

  TEST_CASE("gradients of rms_norm match finite differences") {
    for (const Shape& shape : {Shape{3}, Shape{4, 5}, Shape{2, 3, 17}, Shape{0, 3}}) {
      testing::check_gradient(
          [](const std::vector<Tensor>& in) { return ops::rms_norm(in[0], in[1], kEps); },
          {random_tensor(shape, 5), random_tensor({shape.back()}, 6)});
    }
    testing::check_gradient(
        [](const std::vector<Tensor>& in) {
          return ops::rms_norm(ops::transpose(in[0], 0, 1), in[1], kEps);
        },
        {random_tensor({5, 4}, 8), random_tensor({5}, 9)});
  }

  TEST_CASE_TEMPLATE("the weight gradient of rms_norm goes into its float32 slot", T, float,
                     bfloat16) {
    for_each_isa([] {
      Tensor weight = random_tensor({523}, 1, 1, kDTypeOf<T>);
      const Tensor dweight = Tensor::full({523}, 99);
      give_slot(weight, dweight);
      const Tensor x = random_tensor({301, 523}, 3, 2, kDTypeOf<T>);
      const Tensor dy = random_tensor({301, 523}, 4, 1, kDTypeOf<T>);
      const std::vector<double> n = by_rms(x);
      std::vector<double> expected(523);
      for (std::size_t i = 0; i < n.size(); ++i) {
        expected[i % 523] += dy.item(static_cast<std::int64_t>(i)) * n[i];
      }
      for (const double times : {1.0, 2.0}) {
        autograd::backward(ops::rms_norm(x, weight, kEps), {.grad_output = dy});
        for (std::int64_t i = 0; i < 523; ++i) {
          CHECK(dweight.item(i) == doctest::Approx(times * expected[static_cast<std::size_t>(i)])
                                       .epsilon(1e-4)
                                       .scale(1));
        }
      }
    });
  }

  TEST_CASE("a mean far from 0 costs no accuracy in the variance") {
    for_each_isa([] {
      // A sum of squares would lose all digits of a variance of 2/3.
      Tensor x = Tensor::empty({3000});
      for (std::int64_t i = 0; i < 3000; ++i) {
        x.set_item(i, 10000 + static_cast<double>(i % 3));
      }
      const Tensor ones = Tensor::full({3000}, 1);
      expect_close(ops::layer_norm(x, ones, {}, kEps), normalized(x), 2e-3);
    });
  }

  TEST_CASE("gradients of layer_norm match finite differences") {
    const auto with_bias = [](const std::vector<Tensor>& in) {
      return ops::layer_norm(in[0], in[1], in[2], kEps);
    };
    const auto without = [](const std::vector<Tensor>& in) {
      return ops::layer_norm(ops::transpose(in[0], 0, 1), in[1], {}, kEps);
    };
    for (const Shape& shape : {Shape{3}, Shape{4, 5}, Shape{2, 3, 17}, Shape{0, 3}}) {
      testing::check_gradient(with_bias, {random_tensor(shape, 5), random_tensor({shape.back()}, 6),
                                          random_tensor({shape.back()}, 7)});
    }
    testing::check_gradient(without, {random_tensor({5, 4}, 8), random_tensor({5}, 9)});
  }

  TEST_CASE_TEMPLATE("weight and bias gradients go into float32 slots, replacing, then adding", T,
                     float, bfloat16) {
    for_each_isa([] {
      for (const auto& [rows, width] :
           std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 3}, {300, 1}, {301, 523}}) {
        CAPTURE(rows);
        Tensor weight = random_tensor({width}, 1, 1, kDTypeOf<T>);
        Tensor bias = random_tensor({width}, 2, 1, kDTypeOf<T>);
        const Tensor dweight = Tensor::full({width}, 99);
        // A strided slot.
        const Tensor dbias =
            views::squeeze(views::narrow(Tensor::full({width, 2}, 99), 1, 1, 1), 1);
        give_slot(weight, dweight);
        give_slot(bias, dbias);
        const Tensor x = random_tensor({rows, width}, 3, 2, kDTypeOf<T>);
        const Tensor dy = random_tensor({rows, width}, 4, 1, kDTypeOf<T>);
        const std::vector<double> n = normalized(x);
        std::vector<double> expected_weight(static_cast<std::size_t>(width));
        std::vector<double> expected_bias(static_cast<std::size_t>(width));
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          const auto column = static_cast<std::size_t>(i % width);
          expected_weight[column] += dy.item(i) * n[static_cast<std::size_t>(i)];
          expected_bias[column] += dy.item(i);
        }
        for (const double times : {1.0, 2.0}) {
          autograd::backward(ops::layer_norm(x, weight, bias, kEps), {.grad_output = dy});
          for (std::size_t i = 0; i < expected_weight.size(); ++i) {
            const auto column = static_cast<std::int64_t>(i);
            CHECK(dweight.item(column) ==
                  doctest::Approx(times * expected_weight[i]).epsilon(1e-4).scale(1));
            CHECK(dbias.item(column) ==
                  doctest::Approx(times * expected_bias[i]).epsilon(1e-4).scale(1));
          }
        }
      }
    });
  }

  TEST_CASE("a gradient nobody wants is not computed") {
    Tensor weight = Tensor::full({3}, 1);
    weight.set_requires_grad(true);
    const Tensor x = random_tensor({2, 3}, 1, 1, DType::Float32);
    autograd::backward(ops::sum(ops::layer_norm(x, weight, {}, kEps)));
    CHECK(weight.grad().defined());
  }

  TEST_CASE("the bits of rms_norm do not depend on threads, its bytes not on the device") {
    testing::check_same_bits([] {
      Tensor x = random_tensor({517, 261}, 8, 5, DType::Float32).set_requires_grad(true);
      Tensor weight = random_tensor({261}, 9, 1, DType::Float32).set_requires_grad(true);
      const Tensor y = ops::rms_norm(x, weight, kEps);
      autograd::backward(y, {.grad_output = random_tensor(x.shape(), 11, 1, DType::Float32)});
      return std::vector{y, x.grad(), weight.grad()};
    });
    testing::check_same_memory([](Device device) {
      Tensor x = Tensor::full({333, 17}, 1, DType::BFloat16, device).set_requires_grad(true);
      Tensor weight = Tensor::full({17}, 1, DType::BFloat16, device).set_requires_grad(true);
      const auto [sum, normed] = ops::add_rms_norm(x, x, weight, kEps);
      autograd::backward(ops::sum(ops::add(sum, ops::rms_norm(normed, weight, kEps))));
    });
  }

  TEST_CASE("the bits of layer_norm do not depend on threads or runs") {
    testing::check_same_bits([] {
      Tensor x = random_tensor({517, 261}, 8, 5, DType::Float32);
      Tensor weight = random_tensor({261}, 9, 1, DType::Float32);
      Tensor bias = random_tensor({261}, 10, 1, DType::Float32);
      x.set_requires_grad(true);
      weight.set_requires_grad(true);
      bias.set_requires_grad(true);
      const Tensor y = ops::layer_norm(x, weight, bias, kEps);
      autograd::backward(y, {.grad_output = random_tensor(x.shape(), 11, 1, DType::Float32)});
      return std::vector{y, x.grad(), weight.grad(), bias.grad()};
    });
  }

  TEST_CASE("layer_norm counts the same memory on meta") {
    testing::check_same_memory([](Device device) {
      Tensor x = Tensor::full({333, 17}, 1, DType::BFloat16, device);
      Tensor weight = Tensor::full({17}, 1, DType::BFloat16, device);
      Tensor bias = Tensor::full({17}, 1, DType::BFloat16, device);
      x.set_requires_grad(true);
      weight.set_requires_grad(true);
      bias.set_requires_grad(true);
      autograd::backward(ops::sum(ops::layer_norm(x, weight, bias, kEps)));
    });
  }

  TEST_CASE("layer_norm refuses what it cannot do") {
    const Tensor x = Tensor::zeros({2, 3});
    const Tensor weight = Tensor::zeros({3});
    CHECK_THROWS_WITH_AS(
        ops::layer_norm(x, Tensor::zeros({2}), {}, kEps),
        doctest::Contains("layer_norm: weight of shape [2] does not fit x of [2, 3]"), ShapeError);
    CHECK_THROWS_WITH_AS(
        ops::layer_norm(x, weight, Tensor::zeros({1, 3}), kEps),
        doctest::Contains("layer_norm: bias of shape [1, 3] does not fit x of [2, 3]"), ShapeError);
    CHECK_THROWS_WITH_AS(ops::layer_norm(Tensor::zeros({}), weight, {}, kEps),
                         doctest::Contains("layer_norm: needs at least one dimension"), ShapeError);
    CHECK_THROWS_WITH_AS(ops::layer_norm(x, Tensor::zeros({3}, DType::BFloat16), {}, kEps),
                         doctest::Contains("layer_norm: dtypes float32 and bfloat16 differ"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(ops::layer_norm(Tensor::zeros({3}, DType::Int64), weight, {}, kEps),
                         doctest::Contains("layer_norm: needs float32, float64 or bfloat16"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(
        ops::layer_norm(x, Tensor::zeros({3}, DType::Float32, Device::meta()), {}, kEps),
        doctest::Contains("layer_norm: devices cpu and meta differ"), DeviceError);
    CHECK_THROWS_WITH_AS(
        ops::rms_norm(x, Tensor::zeros({2}), kEps),
        doctest::Contains("rms_norm: weight of shape [2] does not fit x of [2, 3]"), ShapeError);
    CHECK_THROWS_WITH_AS(ops::rms_norm(x, weight, -1),
                         doctest::Contains("rms_norm: eps must be positive, got -1"), ConfigError);
    CHECK_THROWS_WITH_AS(ops::layer_norm(x, weight, {}, 0),
                         doctest::Contains("layer_norm: eps must be positive, got 0"), ConfigError);
  }
}

}  // namespace fsdptrain
