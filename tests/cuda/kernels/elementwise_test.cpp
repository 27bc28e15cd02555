#include "kernels/elementwise.h"

#include <cstdint>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cuda/kernels/arrays.h"
#include "tests/cuda/kernels/values.h"

namespace fsdptrain::testing {
namespace {

// Of one shape for all operands; the output's own strides have no overlap.
struct Layout {
  Shape sizes;
  Strides out;
  Strides first;
  Strides others;
  std::int64_t numel;  // of the memory of each operand
};

std::vector<Layout> layouts() {
  return {
      {{0}, {1}, {1}, {1}, 0},
      {{1}, {1}, {1}, {1}, 1},
      {{1009}, {1}, {1}, {1}, 1009},
      // Transposed, broadcast, with gaps.
      {{13, 7}, {7, 1}, {1, 13}, {0, 1}, 91},
      {{5, 3, 2}, {13, 4, 1}, {6, 2, 1}, {1, 0, 5}, 62},
      {{2, 3, 2, 2}, {40, 12, 5, 1}, {1, 2, 6, 12}, {0, 1, 0, 3}, 71},
  };
}

// f on the fake and on the CPU; T is what the formula computes in.
template <class T, class F, std::size_t... k>
void check_formula(F f, std::index_sequence<k...>) {
  std::uint64_t seed = 0;
  for (const Layout& layout : layouts()) {
    CAPTURE(layout.sizes);
    std::vector<Array> arrays{array_of(some_values<typename F::template Out<T>>(layout.numel, 9),
                                       layout.sizes, layout.out)};
    (arrays.push_back(
         array_of(some_values<typename F::template In<T, static_cast<int>(k)>>(layout.numel, k),
                  layout.sizes, k == 0 ? layout.first : layout.others)),
     ...);
    check_bits_of_cpu(seed++, arrays, [f](const Launch& launch, const std::vector<View>& views) {
      kernels::map(launch, f, views[0], views[k + 1]...);
    });
  }
}

template <int inputs, class F>
void check_tag(F f) {
  const auto each = std::make_index_sequence<inputs>();
  check_formula<float>(f, each);
  check_formula<double>(f, each);
  check_formula<bfloat16>(f, each);
  if constexpr (F::kIntegers) {
    check_formula<float16>(f, each);
    check_formula<std::int64_t>(f, each);
    check_formula<std::int32_t>(f, each);
    check_formula<std::uint16_t>(f, each);
    check_formula<std::uint8_t>(f, each);
  }
}

template <int inputs, class... F>
void check_tags(F... f) {
  if (!has_gpu()) {
    return;
  }
  (check_tag<inputs>(f), ...);
}

TEST_SUITE("cuda/kernels/elementwise") {
  using namespace kernels;  // NOLINT(google-build-using-namespace): the tags

  TEST_CASE("arithmetic on the device has the bits of the CPU") {
    check_tags<2>(Add{}, Subtract{}, Multiply{}, Divide{}, Maximum{}, Minimum{}, AddScaled{{}, 0.3},
                  Lerp{{}, 0.7});
    check_tags<1>(Negate{}, Affine{{}, 0.1, 2}, Square{}, Sqrt{}, Rsqrt{});
    check_tags<2>(SqrtBackward{}, RsqrtBackward{});
  }

  TEST_CASE("comparison and selection on the device have the bits of the CPU") {
    check_tags<2>(Equal{}, NotEqual{}, Less{}, LessEqual{}, Greater{}, GreaterEqual{});
    check_tags<3>(Where{});
  }

  TEST_CASE("activations on the device have the bits of the CPU") {
    check_tags<1>(Exp{}, Log{}, Tanh{}, Erf{}, Gelu{}, GeluTanh{}, Silu{});
    check_tags<2>(TanhBackward{}, ErfBackward{}, GeluBackward{}, GeluTanhBackward{}, SiluBackward{},
                  SiluMul{});
    check_tags<3>(SiluMulBackward{});
  }

  TEST_CASE("an output that is its input is no race") {
    if (!has_gpu()) {
      return;
    }
    for (std::uint64_t seed = 0; seed < num_orders(); ++seed) {
      check_bits_of_cpu(seed, {array_of(some_values<float>(1009, 1), {1009}, {1})},
                        [](const Launch& launch, const std::vector<View>& views) {
                          map(launch, Multiply{}, views[0], views[0], views[0]);
                        });
    }
  }
}

}  // namespace
}  // namespace fsdptrain::testing
