#include "kernels/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/random.h"
#include "tests/support/kernel_map.h"
#include "tests/support/max_or_nan.h"

namespace fsdptrain::testing {
namespace {

// 0, 1, primes, one block of the loop and more.
constexpr std::int64_t kSizes[] = {0, 1, 7, 31, 16384, 40009};

template <class T>
std::vector<T> random_values(std::int64_t size, std::uint64_t seed, double low, double high) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::uint32_t word = philox(static_cast<std::uint64_t>(i), 0, seed).word[0];
    values.push_back(static_cast<T>(low + (high - low) * to_unit_interval(word)));
  }
  return values;
}

// f against its formula in long double, to `ulps` of the larger of |result| and 1.
template <class T, class F, class Formula, class... In>
void check_formula(F f, Formula formula, double ulps, const std::vector<In>&... in) {
  for (const Isa isa : supported_isas()) {
    CAPTURE(name_of(isa));
    const std::vector<T> results = mapped<T>(isa, f, in...);
    double worst = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const long double expected = formula(static_cast<long double>(in[i])...);
      const long double scale = std::fmax(1.0L, std::fabs(expected));
      const double error = static_cast<double>(std::fabs(results[i] - expected) / scale);
      worst = max_or_nan(worst, error);
    }
    CHECK(worst <= ulps * std::numeric_limits<T>::epsilon());
  }
}

template <class T, class F, class Formula>
void check_unary(F f, Formula formula, double ulps, double low = -4, double high = 4) {
  for (const std::int64_t size : kSizes) {
    CAPTURE(size);
    check_formula<T>(f, formula, ulps, random_values<T>(size, 1, low, high));
  }
}

template <class T, class F, class Formula>
void check_binary(F f, Formula formula, double ulps, double low = -4, double high = 4) {
  for (const std::int64_t size : kSizes) {
    CAPTURE(size);
    check_formula<T>(f, formula, ulps, random_values<T>(size, 1, -4, 4),
                     random_values<T>(size, 2, low, high));
  }
}

// Equal bits; no NaNs are compared with it.
template <class Out, class F, class... In>
void check_exact(F f, const std::vector<Out>& expected, const std::vector<In>&... in) {
  for (const Isa isa : supported_isas()) {
    CAPTURE(name_of(isa));
    CHECK(mapped<Out>(isa, f, in...) == expected);
  }
}

constexpr long double kPi = 3.14159265358979323846264338327950288L;

long double gelu(long double x) {
  return x * (1 + std::erf(x / std::sqrt(2.0L))) / 2;
}
long double gelu_slope(long double x) {
  return (1 + std::erf(x / std::sqrt(2.0L))) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * kPi);
}
long double gelu_tanh(long double x) {
  return x * (1 + std::tanh(std::sqrt(2 / kPi) * (x + 0.044715L * x * x * x))) / 2;
}
long double gelu_tanh_slope(long double x) {
  const long double t = std::tanh(std::sqrt(2 / kPi) * (x + 0.044715L * x * x * x));
  return (1 + t) / 2 + x * (1 - t * t) / 2 * std::sqrt(2 / kPi) * (1 + 3 * 0.044715L * x * x);
}

// The upper half of a float, chosen between the two neighbours by distance, at a tie the even one.
std::uint16_t nearest_bfloat16(float x) {
  const auto below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
  const auto above = static_cast<std::uint16_t>(below + 1);
  const double to_below = std::fabs(static_cast<double>(x) - to_float(bfloat16{below}));
  const double to_above = std::fabs(to_float(bfloat16{above}) - static_cast<double>(x));
  if (to_below == to_above) {
    return below % 2 == 0 ? below : above;
  }
  return to_below < to_above ? below : above;
}

// A bfloat16 result is the float32 result of the same formula on the same values, rounded once.
template <class F, int inputs>
void check_bfloat16(F f) {
  constexpr std::int64_t kSize = 4099;
  std::vector<float> wide[2] = {random_values<float>(kSize, 5, 0.1, 4),
                                random_values<float>(kSize, 6, 0.1, 4)};
  std::vector<bfloat16> narrow[2];
  for (int k = 0; k < 2; ++k) {
    for (float& x : wide[k]) {
      narrow[k].push_back({nearest_bfloat16(x)});
      x = to_float(narrow[k].back());
    }
  }
  for (const Isa isa : supported_isas()) {
    CAPTURE(name_of(isa));
    std::vector<float> expected;
    std::vector<bfloat16> results;
    if constexpr (inputs == 1) {
      expected = mapped<float>(isa, f, wide[0]);
      results = mapped<bfloat16>(isa, f, narrow[0]);
    } else {
      expected = mapped<float>(isa, f, wide[0], wide[1]);
      results = mapped<bfloat16>(isa, f, narrow[0], narrow[1]);
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      wrong += results[i].bits != nearest_bfloat16(expected[i]) ? 1u : 0u;
    }
    CHECK(wrong == 0);
  }
}

// The integers that wrap: the ends of the range and the middle.
template <class T>
std::vector<T> integer_values() {
  using Limits = std::numeric_limits<T>;
  return {0,
          1,
          2,
          3,
          100,
          Limits::max() / 2,
          Limits::max() - 1,
          Limits::max(),
          Limits::min(),
          static_cast<T>(Limits::min() + 1),
          static_cast<T>(Limits::min() / 2)};
}

// Every pair of two elements of `values`.
template <class T>
void all_pairs(const std::vector<T>& values, std::vector<T>& a, std::vector<T>& b) {
  for (const T x : values) {
    for (const T y : values) {
      a.push_back(x);
      b.push_back(y);
    }
  }
}

// NOLINTNEXTLINE(modernize-use-using): __extension__ takes no alias declaration
__extension__ typedef __int128 Wide;

// The low bits of a result in 128 bits, as T: what wrapping means.
template <class T>
T wrapped(Wide value) {
  const Wide modulus = Wide{1} << (8 * sizeof(T));
  const Wide low = (value % modulus + modulus) % modulus;
  return static_cast<T>(static_cast<std::uint64_t>(low));
}

}  // namespace

TEST_SUITE("kernels/elementwise") {
  TEST_CASE_TEMPLATE("arithmetic follows its formula", T, float, double) {
    // 0.51: correctly rounded, but for the oracle's own rounding.
    check_binary<T>(
        kernels::Add{}, [](auto a, auto b) { return a + b; }, 0.51);
    check_binary<T>(
        kernels::Subtract{}, [](auto a, auto b) { return a - b; }, 0.51);
    check_binary<T>(
        kernels::Multiply{}, [](auto a, auto b) { return a * b; }, 0.51);
    check_binary<T>(
        kernels::Divide{}, [](auto a, auto b) { return a / b; }, 0.51, 0.5, 8);
    check_binary<T>(
        kernels::AddScaled{{}, 0.75}, [](auto a, auto b) { return a + 0.75L * b; }, 2);
    check_unary<T>(
        kernels::Affine{{}, -1.25, 0.5}, [](auto x) { return -1.25L * x + 0.5L; }, 2);
    check_unary<T>(
        kernels::Negate{}, [](auto x) { return -x; }, 0);
    check_unary<T>(
        kernels::Square{}, [](auto x) { return x * x; }, 0.51);
    check_unary<T>(
        kernels::Sqrt{}, [](auto x) { return std::sqrt(x); }, 0.51, 0, 8);
    check_unary<T>(
        kernels::Rsqrt{}, [](auto x) { return 1 / std::sqrt(x); }, 2, 0.1, 8);
  }

  TEST_CASE_TEMPLATE("activations follow their formula", T, float, double) {
    check_unary<T>(kernels::Gelu{}, gelu, 8);
    check_unary<T>(kernels::GeluTanh{}, gelu_tanh, 8);
    check_unary<T>(
        kernels::Exp{}, [](auto x) { return std::exp(x); }, 2);
    check_unary<T>(
        kernels::Log{}, [](auto x) { return std::log(x); }, 2, 0.01, 8);
    check_unary<T>(
        kernels::Tanh{}, [](auto x) { return std::tanh(x); }, 2);
    check_unary<T>(
        kernels::Erf{}, [](auto x) { return std::erf(x); }, 2);
  }

  TEST_CASE_TEMPLATE("derivatives follow their formula", T, float, double) {
    check_binary<T>(
        kernels::GeluBackward{}, [](auto dy, auto x) { return dy * gelu_slope(x); }, 16);
    check_binary<T>(
        kernels::GeluTanhBackward{}, [](auto dy, auto x) { return dy * gelu_tanh_slope(x); }, 16);
    check_binary<T>(
        kernels::TanhBackward{}, [](auto dy, auto y) { return dy * (1 - y * y); }, 4, -1, 1);
    check_binary<T>(
        kernels::ErfBackward{},
        [](auto dy, auto x) { return dy * 2 / std::sqrt(kPi) * std::exp(-x * x); }, 16);
    check_binary<T>(
        kernels::SqrtBackward{}, [](auto dy, auto y) { return dy / (2 * y); }, 2, 0.5, 4);
    check_binary<T>(
        kernels::RsqrtBackward{}, [](auto dy, auto x) { return -dy / (2 * x * std::sqrt(x)); }, 4,
        0.5, 4);
  }

  TEST_CASE("bfloat16 results are float32 results rounded to nearest, ties to even") {
    check_bfloat16<kernels::Add, 2>({});
    check_bfloat16<kernels::Subtract, 2>({});
    check_bfloat16<kernels::Multiply, 2>({});
    check_bfloat16<kernels::Divide, 2>({});
    check_bfloat16<kernels::Square, 1>({});
    check_bfloat16<kernels::Negate, 1>({});
    check_bfloat16<kernels::Exp, 1>({});
    check_bfloat16<kernels::Log, 1>({});
    check_bfloat16<kernels::Tanh, 1>({});
    check_bfloat16<kernels::Gelu, 1>({});
    check_bfloat16<kernels::GeluTanh, 1>({});
    check_bfloat16<kernels::GeluBackward, 2>({});
    check_bfloat16<kernels::GeluTanhBackward, 2>({});
  }

  TEST_CASE("a tie of bfloat16 goes to the even neighbour") {
    // 1 + 2^-8 lies between 1 and 1 + 2^-7; 1 + 3 * 2^-8 between 1 + 2^-7 and 1 + 2^-6.
    const std::vector<bfloat16> one(3, bfloat16{0x3f80});
    const std::vector<bfloat16> tail = {{0x3b80}, {0x3c40}, {0x3b81}};
    for (const Isa isa : supported_isas()) {
      const auto sums = mapped<bfloat16>(isa, kernels::Add{}, one, tail);
      CHECK(sums[0].bits == 0x3f80);
      CHECK(sums[1].bits == 0x3f82);
      CHECK(sums[2].bits == 0x3f81);
    }
  }

  TEST_CASE_TEMPLATE("integers wrap", T, std::int64_t, std::int32_t, std::uint16_t, std::uint8_t) {
    std::vector<T> a;
    std::vector<T> b;
    all_pairs(integer_values<T>(), a, b);
    std::vector<T> sum, difference, product, opposite;
    for (std::size_t i = 0; i < a.size(); ++i) {
      sum.push_back(wrapped<T>(Wide{a[i]} + Wide{b[i]}));
      difference.push_back(wrapped<T>(Wide{a[i]} - Wide{b[i]}));
      product.push_back(wrapped<T>(Wide{a[i]} * Wide{b[i]}));
      opposite.push_back(wrapped<T>(-Wide{a[i]}));
    }
    check_exact(kernels::Add{}, sum, a, b);
    check_exact(kernels::Subtract{}, difference, a, b);
    check_exact(kernels::Multiply{}, product, a, b);
    check_exact(kernels::Negate{}, opposite, a);
  }

  TEST_CASE_TEMPLATE("comparisons give 0 or 1", T, float, double, std::int64_t, std::int32_t,
                     std::uint16_t, std::uint8_t) {
    std::vector<T> values;
    if constexpr (std::numeric_limits<T>::is_integer) {
      values = integer_values<T>();
    } else {
      const T inf = std::numeric_limits<T>::infinity();
      values = {T(0),
                -T(0),
                T(1),
                T(-1),
                inf,
                -inf,
                std::numeric_limits<T>::quiet_NaN(),
                std::numeric_limits<T>::denorm_min()};
    }
    std::vector<T> a;
    std::vector<T> b;
    all_pairs(values, a, b);
    std::vector<std::uint8_t> equal, not_equal, less, less_equal, greater, greater_equal;
    for (std::size_t i = 0; i < a.size(); ++i) {
      equal.push_back(a[i] == b[i] ? 1 : 0);
      not_equal.push_back(a[i] == b[i] ? 0 : 1);
      less.push_back(a[i] < b[i] ? 1 : 0);
      less_equal.push_back(a[i] < b[i] || a[i] == b[i] ? 1 : 0);
      greater.push_back(b[i] < a[i] ? 1 : 0);
      greater_equal.push_back(b[i] < a[i] || a[i] == b[i] ? 1 : 0);
    }
    check_exact(kernels::Equal{}, equal, a, b);
    check_exact(kernels::NotEqual{}, not_equal, a, b);
    check_exact(kernels::Less{}, less, a, b);
    check_exact(kernels::LessEqual{}, less_equal, a, b);
    check_exact(kernels::Greater{}, greater, a, b);
    check_exact(kernels::GreaterEqual{}, greater_equal, a, b);
  }

  TEST_CASE_TEMPLATE("the maximum and minimum of integers", T, std::int64_t, std::int32_t,
                     std::uint16_t, std::uint8_t) {
    std::vector<T> a;
    std::vector<T> b;
    all_pairs(integer_values<T>(), a, b);
    std::vector<T> larger, smaller;
    for (std::size_t i = 0; i < a.size(); ++i) {
      larger.push_back(std::max(a[i], b[i]));
      smaller.push_back(std::min(a[i], b[i]));
    }
    check_exact(kernels::Maximum{}, larger, a, b);
    check_exact(kernels::Minimum{}, smaller, a, b);
  }

  TEST_CASE_TEMPLATE("maximum and minimum propagate NaN and order -0 before +0", T, float, double) {
    const T inf = std::numeric_limits<T>::infinity();
    // In order, so that the larger of two is the one with the larger index.
    const std::vector<T> ordered = {-inf, T(-1), -T(0), T(0), T(1), inf};
    const T nan = std::numeric_limits<T>::quiet_NaN();
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      for (std::size_t i = 0; i < ordered.size(); ++i) {
        for (std::size_t k = 0; k < ordered.size(); ++k) {
          CAPTURE(i);
          CAPTURE(k);
          const std::vector<T> a(19, ordered[i]);
          const std::vector<T> b(19, ordered[k]);
          const T larger = ordered[std::max(i, k)];
          const T smaller = ordered[std::min(i, k)];
          for (const T result : mapped<T>(isa, kernels::Maximum{}, a, b)) {
            CHECK((result == larger && std::signbit(result) == std::signbit(larger)));
          }
          for (const T result : mapped<T>(isa, kernels::Minimum{}, a, b)) {
            CHECK((result == smaller && std::signbit(result) == std::signbit(smaller)));
          }
        }
        const std::vector<T> a = {ordered[i], nan};
        const std::vector<T> b = {nan, ordered[i]};
        for (const T result : mapped<T>(isa, kernels::Maximum{}, a, b)) {
          CHECK(std::isnan(result));
        }
        for (const T result : mapped<T>(isa, kernels::Minimum{}, a, b)) {
          CHECK(std::isnan(result));
        }
      }
    }
  }

  TEST_CASE_TEMPLATE("where selects by any nonzero condition", T, float, double, std::int64_t,
                     std::int32_t, std::uint16_t, std::uint8_t) {
    std::vector<std::uint8_t> condition;
    std::vector<T> a, b, expected;
    for (int i = 0; i < 1021; ++i) {
      condition.push_back(static_cast<std::uint8_t>(i % 3 == 0 ? 0 : i));
      a.push_back(static_cast<T>(i % 100));
      b.push_back(static_cast<T>(100 + i % 100));
      expected.push_back(condition.back() != 0 ? a.back() : b.back());
    }
    check_exact(kernels::Where{}, expected, condition, a, b);
  }

  TEST_CASE("where selects bfloat16 and float16") {
    const std::vector<std::uint8_t> condition = {1, 0, 255};
    for (const Isa isa : supported_isas()) {
      const auto wide = mapped<bfloat16>(isa, kernels::Where{}, condition,
                                         std::vector<bfloat16>{{0x3f80}, {0x4000}, {0x4040}},
                                         std::vector<bfloat16>{{0xbf80}, {0xc000}, {0xc040}});
      CHECK(wide[0].bits == 0x3f80);
      CHECK(wide[1].bits == 0xc000);
      CHECK(wide[2].bits == 0x4040);
      const auto half = mapped<float16>(isa, kernels::Where{}, condition,
                                        std::vector<float16>{{0x3c00}, {0x4000}, {0x4200}},
                                        std::vector<float16>{{0xbc00}, {0xc000}, {0xc200}});
      CHECK(half[0].bits == 0x3c00);
      CHECK(half[1].bits == 0xc000);
      CHECK(half[2].bits == 0x4200);
    }
  }

  TEST_CASE_TEMPLATE("views may be transposed, repeated and written with gaps", T, float,
                     std::int64_t) {
    // out[i, j, k] of [5, 7, 11], every third element of its storage, from a transposed
    // operand and one that repeats along i and k.
    const Shape sizes = {5, 7, 11};
    std::vector<T> transposed(5 * 7 * 11);
    std::iota(transposed.begin(), transposed.end(), T(1));
    std::vector<T> repeated(7);
    std::iota(repeated.begin(), repeated.end(), T(1000));
    const std::vector<T> untouched(3 * 5 * 7 * 11, T(-1));
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      std::vector<T> out = untouched;
      map_on(isa, kernels::Subtract{}, with_layout(view_of(out), sizes, {3 * 77, 3 * 11, 3}),
             with_layout(view_of(transposed), sizes, {1, 5, 35}),
             with_layout(view_of(repeated), sizes, {0, 1, 0}));
      std::vector<T> expected = untouched;
      for (std::size_t i = 0; i < 5; ++i) {
        for (std::size_t j = 0; j < 7; ++j) {
          for (std::size_t k = 0; k < 11; ++k) {
            expected[3 * (77 * i + 11 * j + k)] = transposed[i + 5 * j + 35 * k] - repeated[j];
          }
        }
      }
      CHECK(out == expected);
    }
  }

  TEST_CASE("a transcendental function has the same bits through strided views") {
    const std::vector<float> inputs = random_values<float>(2 * 997, 3, -4, 4);
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      const auto dense = mapped<float>(isa, kernels::GeluTanh{}, inputs);
      std::vector<float> strided(inputs.size());
      // Columns of a [997, 2] matrix, one after the other.
      map_on(isa, kernels::GeluTanh{}, with_layout(view_of(strided), {2, 997}, {1, 2}),
             with_layout(view_of(inputs), {2, 997}, {1, 2}));
      CHECK(strided == dense);
    }
  }

  TEST_CASE("a scalar, an empty view and a repeated scalar") {
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      std::vector<double> out = {-1, -1, -1};
      const std::vector<double> two = {2};
      map_on(isa, kernels::Square{}, with_layout(view_of(out), {}, {}),
             with_layout(view_of(two), {}, {}));
      CHECK(out == std::vector<double>{4, -1, -1});
      map_on(isa, kernels::Square{}, with_layout(view_of(out), {3, 0}, {0, 1}),
             with_layout(view_of(two), {3, 0}, {0, 0}));
      CHECK(out == std::vector<double>{4, -1, -1});
      map_on(isa, kernels::Square{}, view_of(out), with_layout(view_of(two), {3}, {0}));
      CHECK(out == std::vector<double>{4, 4, 4});
    }
  }

  TEST_CASE("the result may be written over either input") {
    for (const std::int64_t size : kSizes) {
      CAPTURE(size);
      const std::vector<float> a = random_values<float>(size, 1, -4, 4);
      const std::vector<float> b = random_values<float>(size, 2, -4, 4);
      for (const Isa isa : supported_isas()) {
        CAPTURE(name_of(isa));
        const auto expected = mapped<float>(isa, kernels::Subtract{}, a, b);
        std::vector<float> first = a;
        map_on(isa, kernels::Subtract{}, view_of(first), view_of(first), view_of(b));
        CHECK(first == expected);
        std::vector<float> second = b;
        map_on(isa, kernels::Subtract{}, view_of(second), view_of(a), view_of(second));
        CHECK(second == expected);
      }
    }
  }
}

}  // namespace fsdptrain::testing
