#include "kernels/combine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::kernels {
namespace {

constexpr CombineOp kOps[] = {CombineOp::Sum, CombineOp::Min, CombineOp::Max};

template <class T>
constexpr bool kNarrow = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

// What the oracle computes in: floats as documented, integers without a sign, which wrap.
template <class T, class = void>
struct WideOf {
  using Type = std::make_unsigned_t<T>;
};
template <class T>
struct WideOf<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  using Type = T;
};
template <class T>
struct WideOf<T, std::enable_if_t<kNarrow<T>>> {
  using Type = float;
};
template <class T>
using Wide = typename WideOf<T>::Type;

template <class T>
Wide<T> widened(T x) {
  if constexpr (kNarrow<T>) {
    return to_float(x);
  } else {
    return static_cast<Wide<T>>(x);
  }
}

template <class T, class V>
T narrowed(V x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(x);
  } else if constexpr (std::is_same_v<T, float16>) {
    return to_float16(x);
  } else {
    return static_cast<T>(x);
  }
}

// The sum, smallest or largest of two values of T by its definition.
template <class T>
Wide<T> join(CombineOp op, Wide<T> a, Wide<T> b) {
  if (op == CombineOp::Sum) {
    return static_cast<Wide<T>>(a + b);
  }
  bool a_is_less = false;
  if constexpr (std::is_integral_v<T>) {
    a_is_less = static_cast<T>(a) < static_cast<T>(b);
  } else {
    if (std::isnan(a) || std::isnan(b)) {
      return std::numeric_limits<Wide<T>>::quiet_NaN();
    }
    a_is_less = a < b || (a == b && std::signbit(a));
  }
  return a_is_less == (op == CombineOp::Min) ? a : b;
}

template <class T>
Wide<T> tree(CombineOp op, const Wide<T>* values, std::size_t count) {
  if (count == 1) {
    return values[0];
  }
  const std::size_t left = std::bit_floor(count - 1);
  return join<T>(op, tree<T>(op, values, left), tree<T>(op, values + left, count - left));
}

template <class T>
using Arrays = std::vector<std::vector<T>>;

template <class To, class T>
std::vector<To> oracle(const Arrays<T>& parts, const CombineOptions& options) {
  std::vector<To> out;
  std::vector<Wide<T>> values(parts.size());
  for (std::size_t i = 0; i < parts[0].size(); ++i) {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      values[k] = widened(parts[k][i]);
      if (options.factor != 1) {
        values[k] = static_cast<Wide<T>>(values[k] * static_cast<Wide<T>>(options.factor));
      }
    }
    Wide<T> result = tree<T>(options.op, values.data(), values.size());
    if (options.scale != 1) {
      result = static_cast<Wide<T>>(result * static_cast<Wide<T>>(options.scale));
    }
    out.push_back(narrowed<To>(result));
  }
  return out;
}

// Integers of all bits; floats of many magnitudes, so that every other order rounds otherwise.
template <class T>
T random_value(std::uint64_t index, std::uint64_t seed) {
  const Philox words = philox(index, 0, seed);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(words.word[0] | std::uint64_t{words.word[1]} << 32);
  } else {
    const double unit = to_unit_interval(words.word[0]) * 2 - 1;
    const auto value =
        static_cast<Wide<T>>(std::ldexp(unit, static_cast<int>(words.word[1] % 12) - 6));
    return narrowed<T>(value);
  }
}

template <class T>
Arrays<T> random_parts(std::size_t count, std::size_t numel) {
  Arrays<T> parts(count);
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t i = 0; i < numel; ++i) {
      parts[k].push_back(random_value<T>(i, k + 1));
    }
  }
  return parts;
}

template <class T>
std::vector<const void*> addresses_of(const Arrays<T>& arrays) {
  std::vector<const void*> addresses;
  for (const std::vector<T>& array : arrays) {
    addresses.push_back(array.data());
  }
  return addresses;
}

Launch launch_of(RankContext& context) {
  return context.launch(Device::cpu());
}

// combine() of the first `numel` elements; what lies behind the result must stay as it was.
template <class To, class T>
std::vector<To> combined(RankContext& context, const Arrays<T>& parts, std::size_t numel,
                         const CombineOptions& options) {
  constexpr std::size_t kBehind = 16;
  std::vector<To> out(numel + kBehind);
  std::memset(out.data(), 0x5a, out.size() * sizeof(To));
  const std::vector<const void*> addresses = addresses_of(parts);
  combine(launch_of(context), {out.data(), kDTypeOf<To>},
          {addresses, kDTypeOf<T>, static_cast<std::int64_t>(numel)}, options);
  To untouched;
  std::memset(&untouched, 0x5a, sizeof untouched);
  for (std::size_t i = numel; i < out.size(); ++i) {
    REQUIRE(std::memcmp(&out[i], &untouched, sizeof untouched) == 0);
  }
  out.resize(numel);
  return out;
}

template <class T>
bool same(T a, T b) {
  if constexpr (!std::is_integral_v<T>) {
    if (std::isnan(widened(a)) || std::isnan(widened(b))) {
      return std::isnan(widened(a)) && std::isnan(widened(b));
    }
  }
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// The first element that is not the expected one, bit for bit, any NaN for a NaN; -1 for none.
template <class T>
std::int64_t first_difference(const std::vector<T>& actual, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!same(actual[i], expected[i])) {
      return static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

RankContext::Options options_of(Isa isa, int threads = 2) {
  return {.threads = threads, .isa = isa, .log_prefix = {}};
}

template <class T>
void check_sizes(const Arrays<T>& parts, const std::vector<T>& expected,
                 const CombineOptions& options) {
  for (const Isa isa : supported_isas()) {
    CAPTURE(name_of(isa));
    RankContext context(options_of(isa));
    for (const std::size_t numel :
         {0, 1, 2, 3, 17, 31, 127, 509, 1021, 1031, 2053, 4093, 4097, 100003}) {
      CAPTURE(numel);
      if (numel <= expected.size()) {
        CHECK(first_difference(combined<T>(context, parts, numel, options), expected) == -1);
      }
    }
  }
}

// Parts with a factor and a scale, into another dtype.
template <class To, class T>
void check_pair() {
  for (const std::size_t count : {1, 2, 3, 4, 5, 7, 8, 9, 64, 100}) {
    CAPTURE(count);
    const Arrays<T> parts = random_parts<T>(count, 2053);
    for (const CombineOptions& options :
         {CombineOptions{}, CombineOptions{.op = CombineOp::Min},
          CombineOptions{.op = CombineOp::Max}, CombineOptions{.factor = 0.3},
          CombineOptions{.scale = 1.0 / static_cast<double>(count)},
          CombineOptions{.factor = 3, .scale = 0.7}}) {
      CAPTURE(options.factor);
      CAPTURE(options.scale);
      const std::vector<To> expected = oracle<To>(parts, options);
      for (const Isa isa : supported_isas()) {
        CAPTURE(name_of(isa));
        RankContext context(options_of(isa));
        CHECK(first_difference(combined<To>(context, parts, 2053, options), expected) == -1);
      }
    }
  }
}

}  // namespace

TEST_SUITE("kernels/combine") {
  TEST_CASE_TEMPLATE("a result is that of the tree over the parts, bit for bit", T, float, double,
                     bfloat16, float16, std::int64_t, std::int32_t, std::uint16_t, std::uint8_t) {
    for (const CombineOp op : kOps) {
      CAPTURE(name_of(op));
      for (const std::size_t count : {1, 2, 3, 4, 5, 7, 8, 9, 64, 100}) {
        CAPTURE(count);
        const Arrays<T> parts = random_parts<T>(count, count < 10 ? 100003 : 4097);
        check_sizes(parts, oracle<T>(parts, {.op = op}), {.op = op});
      }
    }
  }

  TEST_CASE("there may be 1,024 parts") {
    for (const std::size_t count : {511, 1023, 1024}) {
      CAPTURE(count);
      const auto parts = random_parts<float>(count, 1031);
      check_sizes(parts, oracle<float>(parts, {}), {});
    }
  }

  TEST_CASE("many parts of many elements are read to the end") {
    const auto parts = random_parts<float>(100, 100003);
    check_sizes(parts, oracle<float>(parts, {}), {});
  }

  TEST_CASE("neighbours are added first") {
    // Added one after the other, each of the small ones would be lost.
    const float half_ulp = 0x1p-24f;
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      RankContext context(options_of(isa));
      const auto sum = [&](const Arrays<float>& parts) {
        return combined<float>(context, parts, 1, {})[0];
      };
      CHECK(sum({{1}, {half_ulp}, {half_ulp}}) == 1);
      CHECK(sum({{1}, {half_ulp}, {half_ulp}, {half_ulp}}) == 1 + 0x1p-23f);
      // Three halves together: a tie, and 1 + 0x1p-23 is odd.
      CHECK(sum({{0}, {0}, {0}, {1}, {half_ulp}, {half_ulp}, {half_ulp}}) == 1 + 0x1p-22f);
    }
  }

  TEST_CASE_TEMPLATE("16-bit floats are rounded once, at the end", T, bfloat16, float16) {
    // From 256, or 2048, on adding ones in the format itself would change nothing.
    const std::size_t count = std::is_same_v<T, bfloat16> ? 300 : 1000;
    const float value = std::is_same_v<T, bfloat16> ? 1 : 3;
    for (const Isa isa : supported_isas()) {
      RankContext context(options_of(isa));
      const Arrays<T> parts(count, std::vector<T>(5, narrowed<T>(value)));
      CHECK(widened(combined<T>(context, parts, 5, {})[4]) == value * static_cast<float>(count));
      const double average = 1.0 / static_cast<double>(count);
      CHECK(widened(combined<T>(context, parts, 5, {.scale = average})[4]) == value);
    }
  }

  TEST_CASE("out may have the op-math dtype of the parts, or the parts that of out") {
    SUBCASE("float32") {
      check_pair<float, float>();
    }
    SUBCASE("float64") {
      check_pair<double, double>();
    }
    SUBCASE("bfloat16") {
      check_pair<bfloat16, bfloat16>();
    }
    SUBCASE("float16") {
      check_pair<float16, float16>();
    }
    SUBCASE("bfloat16 to float32") {
      check_pair<float, bfloat16>();
    }
    SUBCASE("float16 to float32") {
      check_pair<float, float16>();
    }
    SUBCASE("float32 to bfloat16") {
      check_pair<bfloat16, float>();
    }
    SUBCASE("float32 to float16") {
      check_pair<float16, float>();
    }
  }

  TEST_CASE_TEMPLATE("partial trees combine to the bits of the whole", T, bfloat16, float16) {
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      RankContext context(options_of(isa));
      for (const std::size_t count : {5, 8, 11, 16}) {
        CAPTURE(count);
        const Arrays<T> parts = random_parts<T>(count, 509);
        const CombineOptions whole{.factor = 0.7, .scale = 1.0 / 3};
        // As hosts of four ranks would.
        Arrays<float> partial;
        for (std::size_t first = 0; first < count; first += 4) {
          const Arrays<T> host(
              parts.begin() + static_cast<std::ptrdiff_t>(first),
              parts.begin() + static_cast<std::ptrdiff_t>(std::min(first + 4, count)));
          partial.push_back(combined<float>(context, host, 509, {.factor = whole.factor}));
        }
        CHECK(first_difference(combined<T>(context, partial, 509, {.scale = whole.scale}),
                               combined<T>(context, parts, 509, whole)) == -1);
      }
    }
  }

  TEST_CASE_TEMPLATE("the smallest and the largest pass NaN on, and -0 is less than +0", T, float,
                     double, bfloat16, float16) {
    using V = Wide<T>;
    constexpr V kInfinity = std::numeric_limits<V>::infinity();
    const V specials[] = {
        std::numeric_limits<V>::quiet_NaN(), -kInfinity, kInfinity, V(-0.0), V(0.0), V(1), V(-1)};
    for (const std::size_t count : {1, 2, 3, 4, 5, 9}) {
      CAPTURE(count);
      // Every pair of special values, at every pair of neighbouring parts, among others.
      Arrays<T> parts(count);
      for (std::size_t at = 0; at < count; ++at) {
        for (const V rest : {V(-0.0), V(0.0), kInfinity, -kInfinity}) {
          for (const V first : specials) {
            for (const V second : specials) {
              for (std::size_t k = 0; k < count; ++k) {
                parts[k].push_back(
                    narrowed<T>(k == at ? first : (k == (at + 1) % count ? second : rest)));
              }
            }
          }
        }
      }
      for (const CombineOp op : {CombineOp::Min, CombineOp::Max}) {
        CAPTURE(name_of(op));
        const std::vector<T> expected = oracle<T>(parts, {.op = op});
        for (const Isa isa : supported_isas()) {
          CAPTURE(name_of(isa));
          RankContext context(options_of(isa));
          CHECK(first_difference(combined<T>(context, parts, expected.size(), {.op = op}),
                                 expected) == -1);
        }
      }
    }
  }

  TEST_CASE("integers wrap modulo 2^n and compare with their sign") {
    for (const Isa isa : supported_isas()) {
      RankContext context(options_of(isa));
      CHECK(combined<std::uint8_t>(context, Arrays<std::uint8_t>{{200}, {100}}, 1, {})[0] == 44);
      CHECK(combined<std::uint16_t>(context, Arrays<std::uint16_t>{{40000}, {40000}}, 1, {})[0] ==
            14464);
      CHECK(combined<std::int32_t>(context, Arrays<std::int32_t>{{2147483647}, {1}}, 1, {})[0] ==
            std::numeric_limits<std::int32_t>::min());
      constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
      const Arrays<std::int64_t> wide{{kMost}, {kMost}, {-5}};
      CHECK(combined<std::int64_t>(context, wide, 1, {})[0] == -7);
      CHECK(combined<std::int64_t>(context, wide, 1, {.op = CombineOp::Min})[0] == -5);
    }
  }

  TEST_CASE_TEMPLATE("out may be any one of the parts", T, float, bfloat16, std::uint8_t) {
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      RankContext context(options_of(isa));
      for (const std::size_t count : {1, 2, 3, 5, 9, 64}) {
        CAPTURE(count);
        const Arrays<T> parts = random_parts<T>(count, 20011);
        const std::vector<T> expected = combined<T>(context, parts, 20011, {});
        for (std::size_t k = 0; k<count; k += count> 9 ? 7 : 1) {
          CAPTURE(k);
          Arrays<T> in_place = parts;
          const std::vector<const void*> addresses = addresses_of(in_place);
          combine(launch_of(context), {in_place[k].data(), kDTypeOf<T>},
                  {addresses, kDTypeOf<T>, 20011});
          CHECK(first_difference(in_place[k], expected) == -1);
          in_place[k] = parts[k];
          CHECK(std::ranges::equal(in_place, parts, [](const auto& a, const auto& b) {
            return first_difference(a, b) == -1;
          }));
        }
      }
    }
  }

  TEST_CASE("arrays lie at any element, and may be one another") {
    const std::vector<float> values = random_parts<float>(1, 9000)[0];
    for (const Isa isa : supported_isas()) {
      RankContext context(options_of(isa));
      Arrays<float> shifted;
      std::vector<const void*> addresses;
      for (const std::size_t offset : {1, 7, 3, 3, 15, 30}) {
        addresses.push_back(values.data() + offset);
        shifted.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(offset),
                             values.begin() + static_cast<std::ptrdiff_t>(offset) + 5003);
      }
      std::vector<float> out(5003 + 5);
      combine(launch_of(context), {out.data() + 5, DType::Float32},
              {addresses, DType::Float32, 5003});
      out.erase(out.begin(), out.begin() + 5);
      CHECK(first_difference(out, oracle<float>(shifted, {})) == -1);
    }
  }

  TEST_CASE_TEMPLATE("the bits do not depend on the number of threads", T, float, double,
                     bfloat16) {
    for (const std::size_t count : {2, 5, 23}) {
      CAPTURE(count);
      const Arrays<T> parts = random_parts<T>(count, 70001);
      for (const Isa isa : supported_isas()) {
        CAPTURE(name_of(isa));
        const auto on = [&](int threads) {
          RankContext context(options_of(isa, threads));
          return combined<T>(context, parts, 70001, {.factor = 0.3, .scale = 0.1});
        };
        const std::vector<T> expected = on(1);
        for (const int threads : {2, 3}) {
          CAPTURE(threads);
          CHECK(first_difference(on(threads), expected) == -1);
        }
      }
    }
  }

  TEST_CASE("meta combines nothing and CUDA says that it cannot") {
    RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
    const std::vector<const void*> none(3, nullptr);
    combine(context.launch(Device::meta()), {nullptr, DType::BFloat16},
            {none, DType::Float32, 1000}, {.scale = 0.5});
    Launch cuda = context.launch(Device::cpu());
    cuda.device = Device::cuda(0);
    CHECK_THROWS_WITH_AS(
        combine(cuda, {nullptr, DType::Float32}, {none, DType::Float32, 1000}),
        doctest::Contains("combine: it works on memory of the host, got a launch on cuda:0"),
        DeviceError);
  }

  TEST_CASE("combine refuses what it cannot do") {
    RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
    std::vector<double> memory(1000);
    const auto run = [&](void* out, DType out_dtype, const std::vector<const void*>& parts,
                         DType dtype, std::int64_t numel, const CombineOptions& options = {}) {
      combine(launch_of(context), {out, out_dtype}, {parts, dtype, numel}, options);
    };
    const void* part = memory.data() + 500;
    CHECK_THROWS_WITH_AS(
        run(memory.data(), DType::Float32, {}, DType::Float32, 1),
        doctest::Contains("combine: the number of parts must be in [1, 1024], got 0"), ShapeError);
    CHECK_THROWS_WITH_AS(
        run(memory.data(), DType::Float32, std::vector<const void*>(1025, part), DType::Float32, 1),
        doctest::Contains("[1, 1024], got 1025"), ShapeError);
    CHECK_THROWS_WITH_AS(run(memory.data(), DType::Float32, {part}, DType::Float32, -3),
                         doctest::Contains("combine: parts need a length, got -3"), ShapeError);
    CHECK_THROWS_WITH_AS(run(memory.data(), DType::Float16, {part}, DType::BFloat16, 1),
                         doctest::Contains("that of their sums, float32, or round float32 parts "
                                           "to a 16-bit float, got float16 for parts of bfloat16"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(run(memory.data(), DType::Float32, {part}, DType::Float64, 1),
                         doctest::Contains("got float32 for parts of float64"), DTypeError);
    CHECK_THROWS_WITH_AS(run(memory.data(), DType::Int64, {part}, DType::Int32, 1),
                         doctest::Contains("got int64 for parts of int32"), DTypeError);
    CHECK_THROWS_WITH_AS(run(memory.data(), DType::Int32, {part}, DType::Int32, 1, {.factor = 2}),
                         doctest::Contains("combine: factor and scale are for floating dtypes, got "
                                           "factor 2 and scale 1 for int32"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(run(memory.data(), DType::UInt8, {part}, DType::UInt8, 0, {.scale = 0.5}),
                         doctest::Contains("got factor 1 and scale 0.5 for uint8"), DTypeError);
    CHECK_THROWS_WITH_AS(
        run(memory.data(), DType::Float32, {part}, DType::Float32, 1,
            {.op = CombineOp::Max, .scale = 0.5}),
        doctest::Contains(
            "combine: factor and scale are for sums, got factor 1 and scale 0.5 for max"),
        Error);
    CHECK_THROWS_WITH_AS(run(nullptr, DType::Float32, {part}, DType::Float32, 7),
                         doctest::Contains("combine: out of 7 elements has no memory"),
                         StorageError);
    CHECK_THROWS_WITH_AS(run(memory.data(), DType::Float32, {part, nullptr}, DType::Float32, 7),
                         doctest::Contains("combine: part 1 of 7 elements has no memory"),
                         StorageError);
    // One element into the part, and in another dtype.
    CHECK_THROWS_WITH_AS(
        run(memory.data() + 501, DType::Float64, {memory.data(), part}, DType::Float64, 2),
        doctest::Contains("combine: out must be part 1 in the same dtype or not overlap it, got "
                          "out of float64 8 bytes behind the part of float64, 2 elements each"),
        Error);
    CHECK_THROWS_WITH_AS(
        run(memory.data() + 500, DType::BFloat16, {part}, DType::Float32, 2),
        doctest::Contains("got out of bfloat16 0 bytes behind the part of float32"), Error);
    // Side by side is no overlap, and no element needs no memory.
    run(memory.data() + 502, DType::Float64, {part}, DType::Float64, 2);
    run(memory.data() + 498, DType::Float64, {part}, DType::Float64, 2);
    run(nullptr, DType::Float64, {nullptr, nullptr}, DType::Float64, 0);
  }
}

}  // namespace fsdptrain::kernels
