#include "kernels/functors/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/random.h"
#include "tests/support/kernel_map.h"
#include "tests/support/ulp.h"

namespace fsdptrain::testing {
namespace {

using Oracle = long double (*)(long double);

long double rsqrt_exact(long double x) {
  return 1 / std::sqrt(x);
}

// Uniform in [low, high), then the `neighbours` values of T on both sides of `centre`.
template <class T>
void append_range(std::vector<T>& inputs, double low, double high, int num_values) {
  for (int i = 0; i < num_values; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const double unit = to_unit_interval(philox(index, inputs.size(), 17).word[0]);
    inputs.push_back(static_cast<T>(low + (high - low) * unit));
  }
}

template <class T>
void append_around(std::vector<T>& inputs, double centre, int neighbours) {
  T above = static_cast<T>(centre);
  T below = above;
  for (int i = 0; i < neighbours; ++i) {
    inputs.insert(inputs.end(), {above, below, -above, -below});
    above = std::nextafter(above, std::numeric_limits<T>::infinity());
    below = std::nextafter(below, -std::numeric_limits<T>::infinity());
  }
}

template <class T>
void append_critical(std::vector<T>& inputs) {
  // Where the algorithms change: 0, the ends of polynomials, halves of ln 2, saturation, overflow
  // and underflow of exp in both types.
  constexpr double kLn2 = 0.693147180559945309417;
  for (const double centre :
       {0.0, 0.55, 1.0, 1.5, 4.0, 5.92, 6.0, 9.01, 20.0, 88.7228391, 87.3365448, 103.972077, 104.0,
        105.0, 708.396418532264, 709.782712893384, 745.133219101941, 0.70710678118654752,
        1.41421356237309505}) {
    append_around(inputs, centre, 1000);
  }
  for (int k = -2200; k <= 2200; ++k) {
    append_around(inputs, k * kLn2 / 2, 8);
  }
  append_range<T>(inputs, -1.1, 1.1, 100'000);
  append_range<T>(inputs, -6.5, 6.5, 100'000);
  append_range<T>(inputs, 0.5, 2.0, 100'000);
}

// A stride through all bit patterns: every exponent, subnormals, infinities, NaNs.
std::vector<float> inputs_of(float) {
  std::vector<float> inputs;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 4099) {
    inputs.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  append_critical(inputs);
  append_range<float>(inputs, -105, 90, 100'000);
  return inputs;
}

std::vector<double> inputs_of(double) {
  std::vector<double> inputs;
  for (std::uint64_t i = 0; i < 500'000; ++i) {
    const Philox random = philox(i, 0, 23);
    inputs.push_back(std::bit_cast<double>(std::uint64_t{random.word[0]} << 32 | random.word[1]));
  }
  append_critical(inputs);
  append_range<double>(inputs, -746, 711, 100'000);
  return inputs;
}

template <class T, class F>
void check_accuracy(F f, Oracle oracle, double bound) {
  const std::vector<T> inputs = inputs_of(T{});
  std::vector<long double> exact;
  exact.reserve(inputs.size());
  for (const T x : inputs) {
    exact.push_back(oracle(x));
  }
  for (const Isa isa : supported_isas()) {
    CAPTURE(name_of(isa));
    const std::vector<T> results = mapped<T>(isa, f, inputs);
    double worst = 0;
    T worst_input = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const double error = ulp_error(results[i], exact[i]);
      if (error > worst) {
        worst = error;
        worst_input = inputs[i];
      }
    }
    CAPTURE(worst_input);
    CHECK(worst <= bound);
  }
}

// The bits of f(x), computed among `size` copies of x at `position`.
template <class T, class F>
void check_positions(F f) {
  std::vector<T> inputs;
  append_range<T>(inputs, -7, 7, 40);
  for (const Isa isa : supported_isas()) {
    CAPTURE(name_of(isa));
    std::vector<T> alone;
    for (const T x : inputs) {
      alone.push_back(mapped<T>(isa, f, std::vector<T>{x})[0]);
    }
    for (std::size_t size = 1; size <= inputs.size(); ++size) {
      CAPTURE(size);
      const std::vector<T> first(inputs.begin(), inputs.begin() + static_cast<long>(size));
      const std::vector<T> results = mapped<T>(isa, f, first);
      for (std::size_t i = 0; i < size; ++i) {
        CAPTURE(i);
        // A NaN, of log, has the same bits too.
        CHECK(kernels::math::to_bits(results[i]) == kernels::math::to_bits(alone[i]));
      }
    }
  }
}

template <class T>
struct SpecialValue {
  T input;
  T result;
};

// Equal, with the sign of zero; any NaN equals any NaN.
template <class T, class F>
void check_special(F f, const std::vector<SpecialValue<T>>& values) {
  for (const Isa isa : supported_isas()) {
    CAPTURE(name_of(isa));
    for (const SpecialValue<T>& value : values) {
      CAPTURE(value.input);
      // Both in the vector body and in the remainder.
      for (const T result : mapped<T>(isa, f, std::vector<T>(19, value.input))) {
        CAPTURE(result);
        CHECK(std::isnan(result) == std::isnan(value.result));
        if (!std::isnan(value.result)) {
          CHECK(result == value.result);
          CHECK(std::signbit(result) == std::signbit(value.result));
        }
      }
    }
  }
}

}  // namespace

TEST_SUITE("kernels/functors/math") {
  TEST_CASE_TEMPLATE("exp is within 2 ulp", T, float, double) {
    check_accuracy<T>(kernels::Exp{}, std::exp, 2.0);
  }

  TEST_CASE_TEMPLATE("log is within 2 ulp", T, float, double) {
    check_accuracy<T>(kernels::Log{}, std::log, 2.0);
  }

  TEST_CASE_TEMPLATE("tanh is within 2 ulp", T, float, double) {
    check_accuracy<T>(kernels::Tanh{}, std::tanh, 2.0);
  }

  TEST_CASE_TEMPLATE("erf is within 2 ulp", T, float, double) {
    check_accuracy<T>(kernels::Erf{}, std::erf, 2.0);
  }

  TEST_CASE_TEMPLATE("sqrt is correctly rounded and rsqrt within 2 ulp", T, float, double) {
    // The oracle's own rounding moves a tie by less than 2^-10.
    check_accuracy<T>(kernels::Sqrt{}, std::sqrt, 0.501);
    check_accuracy<T>(kernels::Rsqrt{}, rsqrt_exact, 2.0);
  }

  TEST_CASE_TEMPLATE("bits do not depend on the position in the array", T, float, double) {
    check_positions<T>(kernels::Exp{});
    check_positions<T>(kernels::Log{});
    check_positions<T>(kernels::Tanh{});
    check_positions<T>(kernels::Erf{});
    check_positions<T>(kernels::Rsqrt{});
    check_positions<T>(kernels::Gelu{});
    check_positions<T>(kernels::GeluTanh{});
  }

  TEST_CASE_TEMPLATE("special values are those of IEEE 754", T, float, double) {
    constexpr T kInf = std::numeric_limits<T>::infinity();
    constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
    constexpr T kMax = std::numeric_limits<T>::max();
    constexpr T kTiny = std::numeric_limits<T>::denorm_min();
    const T zero = 0;
    const T one = 1;
    check_special<T>(kernels::Exp{}, {{zero, one},
                                      {-zero, one},
                                      {kTiny, one},
                                      {-kTiny, one},
                                      {kInf, kInf},
                                      {-kInf, zero},
                                      {kMax, kInf},
                                      {-kMax, zero},
                                      {kNan, kNan},
                                      {-kNan, kNan}});
    check_special<T>(kernels::Log{}, {{zero, -kInf},
                                      {-zero, -kInf},
                                      {one, zero},
                                      {-one, kNan},
                                      {-kTiny, kNan},
                                      {kInf, kInf},
                                      {-kInf, kNan},
                                      {kNan, kNan},
                                      {-kNan, kNan}});
    const std::vector<SpecialValue<T>> odd = {{zero, zero},  {-zero, -zero}, {kInf, one},
                                              {-kInf, -one}, {kMax, one},    {-kMax, -one},
                                              {kNan, kNan},  {-kNan, kNan}};
    check_special<T>(kernels::Tanh{}, odd);
    check_special<T>(kernels::Tanh{}, {{kTiny, kTiny}, {-kTiny, -kTiny}});
    check_special<T>(kernels::Erf{}, odd);
    check_special<T>(kernels::Sqrt{},
                     {{zero, zero}, {-zero, -zero}, {kInf, kInf}, {-one, kNan}, {kNan, kNan}});
    check_special<T>(kernels::Rsqrt{},
                     {{zero, kInf}, {-zero, -kInf}, {kInf, zero}, {-one, kNan}, {kNan, kNan}});
  }

  TEST_CASE_TEMPLATE("tanh and erf are odd and never beyond 1", T, float, double) {
    std::vector<T> inputs;
    append_critical(inputs);
    std::vector<T> negated;
    for (const T x : inputs) {
      negated.push_back(-x);
    }
    const auto check_odd = [&](Isa isa, auto f) {
      const std::vector<T> results = mapped<T>(isa, f, inputs);
      const std::vector<T> opposite = mapped<T>(isa, f, negated);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        wrong += results[i] != -opposite[i] || std::fabs(results[i]) > 1 ? 1u : 0u;
      }
      CHECK(wrong == 0);
    };
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      check_odd(isa, kernels::Tanh{});
      check_odd(isa, kernels::Erf{});
    }
  }
}

}  // namespace fsdptrain::testing
