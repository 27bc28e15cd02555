#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/rotary.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

// Shape suffixes: B batch, T tokens, X packed heads.
namespace fsdptrain {
namespace {

using testing::random_tensor;

Tensor some_positions(std::int64_t batch, std::int64_t tokens) {
  Tensor positions = Tensor::empty({batch, tokens}, DType::Int64);
  for (std::int64_t i = 0; i < positions.numel(); ++i) {
    positions.set_item(i, static_cast<double>(i * 37 % 1009));
  }
  return positions;
}

}  // namespace

TEST_SUITE("runtime/ops/packed_rotary") {
  TEST_CASE_TEMPLATE("the first heads are those of rotary, the others are copied", T, float, double,
                     bfloat16) {
    testing::for_each_isa([] {
      constexpr std::int64_t kHeads = 5;
      const std::vector<double> frequencies = ops::rotary_frequencies(6, 100);
      for (const std::int64_t tokens : {0, 1, 7, 67}) {
        for (const std::int64_t turned : {0, 1, 4, 5}) {
          CAPTURE(tokens);
          CAPTURE(turned);
          const Tensor x = random_tensor({2, tokens, kHeads * 6}, 1, 2, kDTypeOf<T>);
          const Tensor positions = some_positions(2, tokens);
          const Tensor heads = ops::reshape(x, {2, tokens, kHeads, 6});
          const std::vector<Tensor> parts{
              ops::rotary(ops::narrow(heads, 2, 0, turned), positions, frequencies),
              ops::narrow(heads, 2, turned, kHeads - turned)};
          const Tensor y = ops::packed_rotary(x, turned, positions, frequencies);
          CHECK(y.shape() == x.shape());
          CHECK(y.dtype() == x.dtype());
          CHECK(y.to_vector() == ops::cat(parts, 2).to_vector());
        }
      }
    });
  }

  TEST_CASE("its gradient in float64 matches finite differences, for strided operands too") {
    const std::vector<double> frequencies = ops::rotary_frequencies(4, 50);
    const Tensor positions = some_positions(2, 3);
    const auto packed = [&](const Tensor& x) {
      return ops::packed_rotary(x, 2, positions, frequencies);
    };
    testing::check_gradient(packed, random_tensor({2, 3, 12}, 3, 1, DType::Float64));
    testing::check_gradient([&](const Tensor& x) { return packed(ops::transpose(x, 1, 2)); },
                            random_tensor({2, 12, 3}, 3, 1, DType::Float64));
  }

  TEST_CASE("widths and positions that do not fit are refused") {
    const std::vector<double> frequencies = ops::rotary_frequencies(4, 50);
    const Tensor positions = some_positions(2, 3);
    const auto run = [&](const Shape& shape, std::int64_t turned) {
      return ops::packed_rotary(Tensor::zeros(shape), turned, positions, frequencies);
    };
    CHECK_THROWS_WITH_AS(run({2, 3, 14}, 1), doctest::Contains("heads of 4 features"), ShapeError);
    CHECK_THROWS_WITH_AS(run({2, 3, 12}, 4), doctest::Contains("with 4 heads to turn"), ShapeError);
    CHECK_THROWS_WITH_AS(run({2, 3, 12}, -1), doctest::Contains("with -1 heads"), ShapeError);
    CHECK_THROWS_AS(run({6, 12}, 1), ShapeError);
    CHECK_THROWS_WITH_AS(run({2, 4, 12}, 1), doctest::Contains("positions of shape [2, 3] do not"),
                         ShapeError);
    CHECK_THROWS_AS(ops::packed_rotary(Tensor::zeros({2, 3, 12}), 1, positions, {}), ShapeError);
  }

  TEST_CASE("a step on meta counts the same bytes") {
    testing::check_same_memory([](Device device) {
      const std::vector<double> frequencies = ops::rotary_frequencies(4, 50);
      Tensor x = Tensor::zeros({2, 300, 12}, DType::Float32, device);
      x.set_requires_grad(true);
      autograd::backward(ops::sum(
          ops::packed_rotary(x, 2, Tensor::zeros({2, 300}, DType::Int64, device), frequencies)));
    });
  }
}

}  // namespace fsdptrain
