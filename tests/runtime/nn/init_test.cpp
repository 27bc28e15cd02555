#include "runtime/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "tests/support/contexts.h"
#include "tests/support/max_or_nan.h"

namespace fsdptrain::nn {
namespace {

// P(X < x) for a standard normal X.
long double distribution(long double x) {
  return std::erfc(-x / std::numbers::sqrt2_v<long double>) / 2;
}

Tensor normal(std::int64_t count, std::string_view name, std::uint64_t seed = 1,
              std::int64_t first = 0) {
  const Tensor values = Tensor::empty({count}, DType::Float64);
  initialize(values, name, Init::normal(1), seed, first);
  return values;
}

}  // namespace

TEST_SUITE("runtime/nn/init") {
  TEST_CASE("the inverse normal inverts the distribution") {
    std::vector<double> probabilities{0.5,     0.075,       0.075000001,   0.925,   0.92500000001,
                                      0x1p-33, 1 - 0x1p-33, 0x1p-32 * 1.5, 0x1p-20, 1 - 0x1p-20};
    for (std::uint64_t i = 0; i < 2000; ++i) {
      probabilities.push_back(to_unit_interval(philox(i, 0, 3).word[0]));
    }
    double worst = 0;
    for (const double p : probabilities) {
      const long double x = inverse_normal(p);
      // One Newton step from x lands on the exact quantile; measured from the nearer tail.
      const long double density =
          std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<long double>);
      const long double off = p < 0.5 ? distribution(x) - static_cast<long double>(p)
                                      : (1 - static_cast<long double>(p)) - distribution(-x);
      const double error =
          static_cast<double>(std::abs(off / density) / std::max(1e-3L, std::abs(x)));
      worst = testing::max_or_nan(worst, error);
    }
    CHECK(worst < 4e-15);
    CHECK(inverse_normal(0.5) == 0);
    CHECK(inverse_normal(0.975) == doctest::Approx(1.959963984540054).epsilon(1e-14));
    CHECK(inverse_normal(0.25) == -inverse_normal(0.75));
    CHECK(inverse_normal(0x1p-33) == -inverse_normal(1 - 0x1p-33));
  }

  TEST_CASE("a parameter's values do not depend on how it is cut") {
    const std::vector<double> whole = normal(1013, "h.0.attn.c_attn.weight").to_vector();
    for (const std::int64_t cut : {0, 1, 2, 3, 5, 512, 1012, 1013}) {
      CAPTURE(cut);
      std::vector<double> parts = normal(cut, "h.0.attn.c_attn.weight").to_vector();
      const std::vector<double> rest =
          normal(1013 - cut, "h.0.attn.c_attn.weight", 1, cut).to_vector();
      parts.insert(parts.end(), rest.begin(), rest.end());
      CHECK(parts == whole);
    }
  }

  TEST_CASE("values have the same bits for any number of threads and in every variant") {
    const Tensor expected = normal(150001, "w");
    testing::check_same_bits([&] {
      const Tensor values = normal(150001, "w");
      CHECK(std::ranges::equal(values.bytes(), expected.bytes()));
      return std::vector<Tensor>{values};
    });
  }

  TEST_CASE("a million values have the moments of a normal distribution") {
    const Tensor values = normal(1'000'000, "wte.weight");
    long double sum = 0;
    long double squares = 0;
    long double fourths = 0;
    for (const double value : values.values<double>()) {
      sum += value;
      squares += value * value;
      fourths += value * value * value * value;
    }
    // Five standard errors: 1/sqrt(n), sqrt(2/n), sqrt(96/n).
    CHECK(std::abs(static_cast<double>(sum) / 1e6) < 5e-3);
    CHECK(std::abs(static_cast<double>(squares) / 1e6 - 1) < 7.1e-3);
    CHECK(std::abs(static_cast<double>(fourths) / 1e6 - 3) < 4.9e-2);
  }

  TEST_CASE("other names and other seeds give other values, uncorrelated") {
    const Tensor first = normal(10007, "h.0.mlp.c_fc.weight");
    for (const Tensor& other :
         {normal(10007, "h.1.mlp.c_fc.weight"), normal(10007, "h.0.mlp.c_fc.weight", 2),
          normal(10007, "h.0.mlp.c_fc.weight", 1, 10007)}) {
      double product = 0;
      std::int64_t equal = 0;
      for (std::int64_t i = 0; i < 10007; ++i) {
        product += first.item(i) * other.item(i);
        equal += first.item(i) == other.item(i);
      }
      CHECK(std::abs(product / 10007) < 0.05);
      CHECK(equal == 0);
    }
  }

  TEST_CASE("constants and standard deviations are as asked, in the tensor's dtype") {
    const Tensor values = Tensor::zeros({3});
    initialize(values, "bias", Init::constant(1.5), 7);
    CHECK(values.to_vector() == std::vector<double>{1.5, 1.5, 1.5});
    initialize(values, "weight", Init::normal(0.02), 1);
    const Tensor unit = normal(3, "weight");
    for (std::int64_t i = 0; i < 3; ++i) {
      CHECK(values.item(i) == static_cast<double>(static_cast<float>(0.02 * unit.item(i))));
    }
    initialize(Tensor::zeros({0}), "none", Init::normal(1), 1);
    CHECK_NOTHROW(initialize(Tensor::zeros({1 << 30, 1 << 10}, DType::Float32, Device::meta()),
                             "weight", Init::normal(1), 1));
    const Tensor halves = Tensor::zeros({3}, DType::BFloat16);
    initialize(halves, "weight", Init::normal(0.02), 1);
    for (std::int64_t i = 0; i < 3; ++i) {
      CHECK(halves.item(i) == Tensor::of({values.item(i)}, DType::BFloat16).item());
    }
    CHECK_THROWS_AS(initialize(Tensor::zeros({3}, DType::Int64), "weight", Init::normal(1), 1),
                    DTypeError);
  }

  // From Philox and FNV-1a written again in Python, and its statistics.NormalDist().inv_cdf. If
  // they changed, runs of old seeds would no longer repeat.
  TEST_CASE("the values of a parameter never change") {
    const auto value = [](std::string_view name, std::uint64_t seed, double standard_deviation,
                          std::int64_t element) {
      const Tensor values = Tensor::empty({1});
      initialize(values, name, Init::normal(standard_deviation), seed, element);
      return values.item();
    };
    CHECK(value("h.0.attn.c_attn.weight", 1, 1, 0) == -1.8759913444519043);
    CHECK(value("h.0.attn.c_attn.weight", 1, 1, 1) == -1.0946779251098633);
    CHECK(value("h.0.attn.c_attn.weight", 1, 1, 1000003) == 0.07934217900037766);
    CHECK(value("wte.weight", ~std::uint64_t{0}, 0.02, 5) == -0.030258389189839363);
  }
}

}  // namespace fsdptrain::nn
