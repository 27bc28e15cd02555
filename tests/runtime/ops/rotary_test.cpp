#include "runtime/ops/rotary.h"

#include <cmath>
#include <numbers>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

// Shape suffixes: B batch, T tokens, H heads, D head size.
namespace fsdptrain {
namespace {

using ops::RotaryScaling;
using testing::expect_close;
using testing::random_tensor;

// Every sample from another position on, in leaps.
Tensor some_positions(std::int64_t batch, std::int64_t tokens) {
  Tensor positions = Tensor::empty({batch, tokens}, DType::Int64);
  for (std::int64_t i = 0; i < positions.numel(); ++i) {
    positions.set_item(i, static_cast<double>((i / std::max<std::int64_t>(tokens, 1)) * 1009 +
                                              (i % std::max<std::int64_t>(tokens, 1)) * 37));
  }
  return positions;
}

// x (cos + i sin) for pairs as complex numbers, in long double but for the angle, which is defined
// as a product in double.
std::vector<double> rotated(const Tensor& x, const Tensor& positions,
                            const std::vector<double>& frequencies) {
  const std::int64_t heads = x.size(2);
  const std::int64_t size = x.size(3);
  std::vector<double> result(static_cast<std::size_t>(x.numel()));
  for (std::int64_t token = 0; token < positions.numel(); ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t i = 0; i < size / 2; ++i) {
        const double angle = positions.item(token) * frequencies[static_cast<std::size_t>(i)];
        const long double cosine = std::cos(static_cast<long double>(angle));
        const long double sine = std::sin(static_cast<long double>(angle));
        const std::int64_t at = (token * heads + head) * size + i;
        const long double low = x.item(at);
        const long double high = x.item(at + size / 2);
        result[static_cast<std::size_t>(at)] = static_cast<double>(low * cosine - high * sine);
        result[static_cast<std::size_t>(at + size / 2)] =
            static_cast<double>(low * sine + high * cosine);
      }
    }
  }
  return result;
}

}  // namespace

TEST_SUITE("runtime/ops/rotary") {
  TEST_CASE_TEMPLATE("rotary turns pairs by position times frequency", T, float, double, bfloat16) {
    testing::for_each_isa([] {
      for (const Shape& shape :
           {Shape{2, 5, 3, 2}, Shape{1, 1, 1, 6}, Shape{3, 67, 2, 34}, Shape{1, 3, 2, 262},
            Shape{0, 3, 2, 4}, Shape{2, 0, 2, 4}, Shape{2, 3, 0, 4}}) {
        CAPTURE(fmt::format("{}", shape));
        const std::vector<double> frequencies = ops::rotary_frequencies(shape[3], 10000);
        const Tensor x = random_tensor(shape, 1, 2, kDTypeOf<T>);
        const Tensor positions = some_positions(shape[0], shape[1]);
        const Tensor y = ops::rotary(x, positions, frequencies);
        CHECK(y.shape() == shape);
        CHECK(y.dtype() == kDTypeOf<T>);
        expect_close(y, rotated(x, positions, frequencies));
      }
    });
  }

  TEST_CASE("sine and cosine are exact to the last bits up to the largest position") {
    testing::for_each_isa([] {
      // The pair (1, 0) becomes cosine and sine.
      const std::int64_t tokens = 4001;
      Tensor positions = Tensor::empty({1, tokens}, DType::Int64);
      Tensor x = Tensor::zeros({1, tokens, 1, 6}, DType::Float64);
      for (std::int64_t i = 0; i < tokens; ++i) {
        positions.set_item(i, static_cast<double>(ops::kMaxRotaryPosition - i * 4194));
        for (std::int64_t pair = 0; pair < 3; ++pair) {
          x.set_item(i * 6 + pair, 1);
        }
      }
      // The second makes angles next to multiples of pi / 4.
      const std::vector<double> frequencies{1, std::numbers::pi / 4, 0.0123456789};
      expect_close(ops::rotary(x, positions, frequencies), rotated(x, positions, frequencies),
                   2.3e-16);
    });
  }

  TEST_CASE("the bits of rotary depend neither on threads nor on the variant") {
    std::vector<double> expected;
    for (const Isa isa : supported_isas()) {
      for (const int threads : {1, 2, 3, 5}) {
        CAPTURE(name_of(isa));
        CAPTURE(threads);
        RankContext context({.threads = threads, .isa = isa, .log_prefix = {}});
        const ContextGuard bound(context);
        Tensor x = random_tensor({2, 301, 3, 34}, 1).set_requires_grad(true);
        const Tensor y =
            ops::rotary(x, some_positions(2, 301), ops::rotary_frequencies(34, 500000));
        autograd::backward(y, {.grad_output = random_tensor(x.shape(), 2)});
        std::vector<double> values = y.to_vector();
        const std::vector<double> gradient = x.grad().to_vector();
        values.insert(values.end(), gradient.begin(), gradient.end());
        if (expected.empty()) {
          expected = values;
        }
        CHECK(values == expected);
      }
    }
  }

  TEST_CASE("the gradient of rotary matches finite differences and turns back") {
    const Tensor positions = some_positions(2, 3);
    const std::vector<double> frequencies = ops::rotary_frequencies(6, 100);
    testing::check_gradient([&](const Tensor& x) { return ops::rotary(x, positions, frequencies); },
                            random_tensor({2, 3, 2, 6}, 1));
    const Tensor x = random_tensor({2, 3, 2, 6}, 1).set_requires_grad(true);
    const Tensor y = ops::rotary(x, positions, frequencies);
    autograd::backward(y, {.grad_output = y.detach()});
    expect_close(x.grad(), x.to_vector(), 1e-14);
  }

  TEST_CASE("queries and keys within one packed projection are turned as dense ones") {
    const std::vector<double> frequencies = ops::rotary_frequencies(4, 10000);
    const Tensor positions = some_positions(2, 5);
    const auto keys_of = [](const Tensor& qkv) {
      return ops::reshape(ops::narrow(qkv, 2, 12, 8), {2, 5, 2, 4});
    };
    const Tensor qkv = random_tensor({2, 5, 28}, 1, 1, DType::Float32);
    const Tensor y = ops::rotary(keys_of(qkv), positions, frequencies);
    CHECK(y.is_contiguous());
    CHECK(y.to_vector() ==
          ops::rotary(ops::clone(keys_of(qkv)), positions, frequencies).to_vector());
    testing::check_gradient(
        [&](const Tensor& x) { return ops::rotary(keys_of(x), positions, frequencies); },
        random_tensor({2, 5, 28}, 1));
    // Features that are not neighbours, and positions that all samples share.
    const Tensor features_first = random_tensor({4, 5, 2, 2}, 3);
    const Tensor shared = views::expand(
        Tensor::from<std::int64_t>(std::vector<std::int64_t>{0, 3, 1, 7, 2}, {1, 5}), {2, 5});
    const Tensor x = ops::transpose(features_first, 0, 3);
    CHECK(ops::rotary(x, shared, frequencies).to_vector() ==
          ops::rotary(ops::clone(x), ops::clone(shared), frequencies).to_vector());
  }

  TEST_CASE("rotary allocates its result alone, and the same on meta") {
    testing::check_same_memory([](Device device) {
      for (const DType dtype : {DType::Float32, DType::BFloat16}) {
        const Tensor x = Tensor::zeros({2, 67, 3, 8}, dtype, device).set_requires_grad(true);
        const Tensor positions = Tensor::zeros({2, 67}, DType::Int64, device);
        autograd::backward(ops::sum(ops::rotary(x, positions, ops::rotary_frequencies(8, 10000))));
      }
    });
  }

  TEST_CASE("frequencies follow the formulas of their kind") {
    const std::vector<double> plain = ops::rotary_frequencies(8, 10000);
    CHECK(plain.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(plain[i] == doctest::Approx(std::pow(0.1, i)).epsilon(1e-15));
    }
    const auto linear =
        ops::rotary_frequencies(8, 10000, {.kind = RotaryScaling::Kind::Linear, .factor = 4});
    const auto llama = ops::rotary_frequencies(8, 10000,
                                               {.kind = RotaryScaling::Kind::Llama3,
                                                .factor = 8,
                                                .low_freq_factor = 1,
                                                .high_freq_factor = 4,
                                                .original_max_position = 1024});
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(linear[i] == plain[i] / 4);
    }
    // Wavelengths 6.28, 62.8, 628 and 6283, against limits of 256 and 1024.
    CHECK(llama[0] == plain[0]);
    CHECK(llama[1] == plain[1]);
    CHECK(llama[3] == plain[3] / 8);
    const double smooth = (1024 / (2 * std::numbers::pi / plain[2]) - 1) / 3;
    CHECK(llama[2] == doctest::Approx((1 - smooth) * plain[2] / 8 + smooth * plain[2]));
    CHECK(smooth > 0.1);
    CHECK(smooth < 0.9);
  }

  TEST_CASE("rotary refuses what it cannot do, by name") {
    const std::vector<double> frequencies = ops::rotary_frequencies(4, 10000);
    const Tensor x = Tensor::zeros({2, 3, 1, 4});
    const auto refused = [&](const Tensor& positions, const char* text) {
      CHECK_THROWS_WITH_AS(ops::rotary(x, positions, frequencies), doctest::Contains(text),
                           ShapeError);
    };
    Tensor positions = Tensor::zeros({2, 3}, DType::Int64);
    positions.set_item(4, -1);
    refused(positions, "rotary: the position of token 4 must be in [0, 16777216], got -1");
    positions.set_item(4, 16777217);
    refused(positions, "rotary: the position of token 4 must be in [0, 16777216], got 16777217");
    refused(Tensor::zeros({3}, DType::Int64),
            "rotary: positions of shape [3] do not fit x [batch, token, head, feature] of shape "
            "[2, 3, 1, 4]");
    positions = Tensor::zeros({2, 3}, DType::Int64);
    CHECK_THROWS_WITH_AS(ops::rotary(x, positions, std::vector<double>{1}),
                         doctest::Contains("rotary: 1 frequencies do not fit heads of size 4"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::rotary(x, positions, std::vector<double>{1, 1.5}),
                         doctest::Contains("rotary: frequencies must be in [0, 1], got 1.5"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(ops::rotary(x, Tensor::zeros({2, 3}, DType::Int32), frequencies),
                         doctest::Contains("rotary: positions must be int64, got int32"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(
        ops::rotary(x, Tensor::zeros({2, 3}, DType::Int64, Device::meta()), frequencies),
        doctest::Contains("rotary: devices cpu and meta differ"), DeviceError);
    const auto no_frequencies = [](std::int64_t size, double theta, const RotaryScaling& scaling,
                                   const char* text) {
      CHECK_THROWS_WITH_AS(ops::rotary_frequencies(size, theta, scaling), doctest::Contains(text),
                           ConfigError);
    };
    no_frequencies(3, 10000, {}, "the head size must be even and at least 2, got 3");
    no_frequencies(0, 10000, {}, "the head size must be even and at least 2, got 0");
    no_frequencies(4, 0.5, {}, "theta must be at least 1, got 0.5");
    no_frequencies(4, std::nan(""), {}, "theta must be at least 1, got nan");
    no_frequencies(4, 10, {.kind = RotaryScaling::Kind::Linear, .factor = 0},
                   "the factor must be at least 1, got 0");
    no_frequencies(
        4, 10, {.kind = RotaryScaling::Kind::Llama3, .low_freq_factor = 4, .high_freq_factor = 4},
        "low_freq_factor must be positive and below high_freq_factor, got 4 and 4");
    no_frequencies(4, 10, {.kind = RotaryScaling::Kind::Llama3, .original_max_position = 0},
                   "original_max_position must be at least 1, got 0");
  }
}

}  // namespace fsdptrain
