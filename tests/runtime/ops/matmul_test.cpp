#include "runtime/ops/matmul.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/matmul.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/cast.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"
#include "tests/support/naive_matmul.h"

namespace fsdptrain {
namespace {

using testing::check_gradient;
using testing::column_major;
using testing::expect_close;
using testing::product_oracle;
using testing::product_tolerance;
using testing::random_tensor;

// The same values with gaps between the rows.
Tensor padded(const Tensor& x) {
  const Tensor wide = Tensor::full({x.size(0), x.size(1) + 3}, 77, x.dtype());
  Tensor inner = views::narrow(wide, 1, 2, x.size(1));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    inner.set_item(i, x.item(i));
  }
  return inner;
}

}  // namespace

TEST_SUITE("runtime/ops/matmul") {
  TEST_CASE_TEMPLATE("products of any layout equal three loops", T, float, double, bfloat16) {
    constexpr DType kDType = kDTypeOf<T>;
    for (const auto& [m, k, n] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1},
                                                                          {1, 7, 1},
                                                                          {5, 1, 3},
                                                                          {1, 13, 17},
                                                                          {17, 13, 1},
                                                                          {31, 37, 29},
                                                                          {67, 131, 71},
                                                                          {0, 3, 5},
                                                                          {3, 0, 5},
                                                                          {3, 5, 0}}) {
      CAPTURE(fmt::format("{} x {} x {}", m, k, n));
      const Tensor a = random_tensor({m, k}, 1, 1, kDType);
      const Tensor b = random_tensor({k, n}, 2, 1, kDType);
      const std::vector<double> expected = product_oracle(a, b);
      for (const Tensor& left : {a, column_major(a), padded(a)}) {
        for (const Tensor& right : {b, column_major(b), padded(b)}) {
          const Tensor product = ops::matmul(left, right);
          REQUIRE(product.shape() == Shape{m, n});
          expect_close(product, expected, product_tolerance(kDType, k));
        }
      }
    }
  }

  TEST_CASE_TEMPLATE("products larger than one tile equal three loops", T, float, double,
                     bfloat16) {
    constexpr DType kDType = kDTypeOf<T>;
    // Deeper than one panel of bfloat16, wider than one tile.
    const Tensor a = random_tensor({300, 600}, 1, 1, kDType);
    const Tensor b = random_tensor({600, 131}, 2, 1, kDType);
    expect_close(ops::matmul(a, b), product_oracle(a, b), product_tolerance(kDType, 600));
    const Tensor wide_a = random_tensor({700, 130}, 3, 1, kDType);
    const Tensor wide_b = random_tensor({130, 900}, 4, 1, kDType);
    expect_close(ops::matmul(wide_a, wide_b), product_oracle(wide_a, wide_b),
                 product_tolerance(kDType, 130));
    // With the left operand by columns the tiles are others, and larger.
    const Tensor deep_a = random_tensor({530, 33}, 5, 1, kDType);
    const Tensor deep_b = random_tensor({33, 790}, 6, 1, kDType);
    expect_close(ops::matmul(column_major(deep_a), deep_b), product_oracle(deep_a, deep_b),
                 product_tolerance(kDType, 33));
  }

  TEST_CASE("bits do not depend on the number of threads or the run") {
    const Tensor a = random_tensor({301, 520}, 1);
    const Tensor b = random_tensor({520, 203}, 2);
    const Tensor b_by_columns = column_major(b);
    testing::check_same_bits([&] {
      std::vector<Tensor> results;
      for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
        const Tensor left = ops::cast(a, dtype);
        results.push_back(ops::matmul(left, ops::cast(b, dtype)));
        results.push_back(ops::matmul(
            left, ops::transpose(ops::cast(ops::transpose(b_by_columns, 0, 1), dtype), 0, 1)));
      }
      return results;
    });
  }

  TEST_CASE("batches multiply index by index, and one factor may serve all") {
    for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
      const Tensor a = random_tensor({2, 3, 5, 7}, 1, 1, dtype);
      const Tensor b = random_tensor({2, 3, 7, 11}, 2, 1, dtype);
      const Tensor product = ops::matmul(a, b);
      const Tensor shared = random_tensor({7, 11}, 3, 1, dtype);
      const Tensor with_shared = ops::matmul(a, shared);
      // Heads as a transformer has them: dimensions 1 and 2 exchanged, no copy made.
      const Tensor heads = ops::transpose(ops::contiguous(ops::transpose(a, 1, 2)), 1, 2);
      CHECK_FALSE(heads.is_contiguous());
      const Tensor of_heads = ops::matmul(heads, b);
      CHECK(product.shape() == Shape{2, 3, 5, 11});
      for (std::int64_t i = 0; i < 6; ++i) {
        const Tensor left =
            views::reshape(views::narrow(views::reshape(a, {6, 5, 7}), 0, i, 1), {5, 7});
        const Tensor right =
            views::reshape(views::narrow(views::reshape(b, {6, 7, 11}), 0, i, 1), {7, 11});
        const auto part = [&](const Tensor& of) {
          return views::narrow(views::reshape(of, {6, 5, 11}), 0, i, 1);
        };
        expect_close(part(product), product_oracle(left, right), product_tolerance(dtype, 7));
        expect_close(part(of_heads), product_oracle(left, right), product_tolerance(dtype, 7));
        expect_close(part(with_shared), product_oracle(left, shared), product_tolerance(dtype, 7));
      }
    }
    CHECK(ops::matmul(Tensor::zeros({0, 2, 3}), Tensor::zeros({0, 3, 4})).shape() ==
          Shape{0, 2, 4});
    const Tensor nothing = ops::matmul(Tensor::zeros({2, 2, 3, 0}), Tensor::zeros({2, 2, 0, 4}));
    CHECK(nothing.shape() == Shape{2, 2, 3, 4});
    CHECK(nothing.to_vector() == std::vector<double>(48, 0));
    const Tensor repeated = ops::expand(random_tensor({1, 3, 2}, 5), {4, 3, 2});
    const Tensor other = random_tensor({4, 2, 3}, 6);
    CHECK(ops::matmul(repeated, other).to_vector() ==
          ops::matmul(ops::contiguous(repeated), other).to_vector());
  }

  TEST_CASE("bfloat16 accumulates in float32 and rounds once") {
    // 256 + 1 + 1 would stay 256 if the sums were bfloat16.
    const Tensor a = Tensor::of({256, 1, 1}, DType::BFloat16).alias({1, 3}, {3, 1}, 0);
    const Tensor b = Tensor::of({1, 1, 1}, DType::BFloat16).alias({3, 1}, {1, 1}, 0);
    CHECK(ops::matmul(a, b).item() == 258);
  }

  TEST_CASE("the kernel overwrites garbage at beta 0 and adds at beta 1") {
    testing::for_each_isa([] {
      for (const auto& [dtype, out_dtype] :
           std::vector<std::pair<DType, DType>>{{DType::Float32, DType::Float32},
                                                {DType::Float64, DType::Float64},
                                                {DType::BFloat16, DType::BFloat16},
                                                {DType::BFloat16, DType::Float32}}) {
        for (const std::int64_t depth : {0, 3, 513}) {
          CAPTURE(fmt::format("{} into {}, depth {}", dtype, out_dtype, depth));
          const Tensor a = Tensor::full({5, depth}, 1, dtype);
          const Tensor b = Tensor::full({depth, 70}, 1, dtype);
          const auto sum = static_cast<double>(depth);
          for (const bool transposed : {false, true}) {
            const Tensor memory = Tensor::full({70, 70}, std::nan(""), out_dtype);
            const Tensor out = transposed ? views::transpose(views::narrow(memory, 1, 0, 5), 0, 1)
                                          : views::narrow(memory, 0, 0, 5);
            const double rounded = Tensor::of({sum}, out_dtype).item();
            kernels::matmul(out.launch(), out.view(), a.view(), b.view(), 0);
            CHECK(out.to_vector() == std::vector<double>(350, rounded));
            kernels::matmul(out.launch(), out.view(), a.view(), b.view(), 1);
            CHECK(out.to_vector() ==
                  std::vector<double>(350, Tensor::of({rounded + sum}, out_dtype).item()));
            CHECK(std::isnan(memory.item(transposed ? 5 : 350)));
          }
        }
      }
    });
  }

  TEST_CASE("an epilogue follows the sum with what was there, in every matrix of a batch") {
    testing::for_each_isa([] {
      for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
        for (const std::int64_t depth : {0, 3}) {
          CAPTURE(fmt::format("{}, depth {}", dtype, depth));
          // Small whole numbers: every sum is exact. More than one tile, the last one not whole.
          const Tensor a = Tensor::full({2, 5, depth}, 2, dtype);
          Tensor b = Tensor::full({2, depth, 133}, 1, dtype);
          Tensor bias = Tensor::empty({133}, dtype);
          for (std::int64_t i = 0; i < b.numel(); ++i) {
            b.set_item(i, static_cast<double>(i % 3));
          }
          for (std::int64_t i = 0; i < 133; ++i) {
            bias.set_item(i, static_cast<double>(i % 7) - 3);
          }
          Tensor out = Tensor::empty({2, 5, 133}, dtype);
          for (std::int64_t i = 0; i < out.numel(); ++i) {
            out.set_item(i, static_cast<double>(i % 5) - 2);
          }
          std::vector<double> expected = out.to_vector();
          for (std::int64_t i = 0; i < out.numel(); ++i) {
            const std::int64_t column = i % 133;
            double& value = expected[static_cast<std::size_t>(i)];
            value += bias.item(column);
            for (std::int64_t p = 0; p < depth; ++p) {
              value += 2 * b.item((i / (5 * 133) * depth + p) * 133 + column);
            }
          }
          const Tensor activated = Tensor::empty({2, 5, 133}, dtype);
          kernels::matmul(out.launch(), out.view(), a.view(), b.view(), 1,
                          {.bias = bias.view(),
                           .has_bias = true,
                           .activation = kernels::Activation::Gelu,
                           .activated = activated.view()});
          CHECK(out.to_vector() == expected);
          CHECK(activated.to_vector() == ops::gelu(out, ops::GeluForm::Erf).to_vector());
        }
      }
    });
  }

  TEST_CASE("an epilogue needs a row-major output") {
    const Tensor bias = Tensor::zeros({2});
    const Tensor out = views::transpose(Tensor::zeros({2, 3}), 0, 1);
    kernels::MatmulEpilogue epilogue;
    epilogue.bias = bias.view();
    epilogue.has_bias = true;
    CHECK_THROWS_AS(kernels::matmul(out.launch(), out.view(), Tensor::zeros({3, 4}).view(),
                                    Tensor::zeros({4, 2}).view(), 0, epilogue),
                    ShapeError);
  }

  TEST_CASE("gradients of products match finite differences") {
    const auto matmul = [](const std::vector<Tensor>& in) { return ops::matmul(in[0], in[1]); };
    check_gradient(matmul, {random_tensor({3, 5}, 1), random_tensor({5, 2}, 2)});
    check_gradient(matmul, {random_tensor({2, 3, 5}, 1), random_tensor({2, 5, 2}, 2)});
    check_gradient(matmul, {random_tensor({2, 2, 3, 2}, 1), random_tensor({2, 2, 2, 3}, 2)});
    check_gradient(matmul, {random_tensor({2, 2, 3, 5}, 1), random_tensor({5, 2}, 2)});
    check_gradient(matmul, {random_tensor({3, 0}, 1), random_tensor({0, 2}, 2)});
    check_gradient(
        [](const std::vector<Tensor>& in) {
          return ops::matmul(ops::transpose(in[0], 0, 1), ops::transpose(in[1], 0, 1));
        },
        {random_tensor({5, 3}, 1), random_tensor({2, 5}, 2)});
  }

  TEST_CASE("only what a gradient needs is saved") {
    Tensor a = random_tensor({3, 5}, 1);
    const Tensor b = random_tensor({5, 2}, 2);
    a.set_requires_grad(true);
    const Tensor y = ops::matmul(a, b);
    a.set_item(0, 9);
    CHECK_NOTHROW(autograd::backward(y, {.grad_output = random_tensor({3, 2}, 3)}));
  }

  TEST_CASE("a product on meta counts the same bytes") {
    testing::check_same_memory([](Device device) {
      for (const DType dtype : {DType::Float32, DType::BFloat16}) {
        const Tensor x = Tensor::zeros({2, 60, 70}, dtype, device).set_requires_grad(true);
        const Tensor w = Tensor::zeros({70, 90}, dtype, device).set_requires_grad(true);
        autograd::backward(ops::matmul(ops::transpose(ops::transpose(x, 0, 1), 0, 1), w),
                           {.grad_output = Tensor::zeros({2, 60, 90}, dtype, device)});
      }
    });
  }

  TEST_CASE("a product that the matrix library refuses is an error on the calling thread") {
    RankContext context({.threads = 3, .isa = {}, .log_prefix = {}});
    const ContextGuard bound(context);
    const Tensor out = Tensor::zeros({1024, 1024});
    const Tensor a = Tensor::zeros({1024, 8});
    const Tensor b = Tensor::zeros({8, 1024});
    View rows_overlap = a.view();
    rows_overlap.strides[0] = 4;
    // Eigen takes any strides, and such a build has nothing to raise.
    try {
      kernels::matmul(out.launch(), out.view(), rows_overlap, b.view(), 0);
    } catch (const Error& error) {
      CHECK(std::string(error.what())
                .starts_with(
                    "matmul: the matrix library refused a tile of the product 1024 x 1024 x 8"));
    }
    CHECK_NOTHROW(ops::matmul(a, b));
  }

  TEST_CASE("operands that do not multiply are named") {
    const auto zeros = [](const Shape& shape, DType dtype = DType::Float32) {
      return Tensor::zeros(shape, dtype);
    };
    CHECK_THROWS_WITH_AS(ops::matmul(zeros({2, 3}), zeros({2, 3})),
                         doctest::Contains("matmul: shapes [2, 3] and [2, 3] do not multiply"),
                         ShapeError);
    CHECK_THROWS_AS(ops::matmul(zeros({3}), zeros({3, 2})), ShapeError);
    CHECK_THROWS_AS(ops::matmul(zeros({2, 3}), zeros({3})), ShapeError);
    CHECK_THROWS_WITH_AS(
        ops::matmul(zeros({2, 2, 3}), zeros({4, 3, 2})),
        doctest::Contains("matmul: the leading dimensions of [2, 2, 3] and [4, 3, 2] differ"),
        ShapeError);
    CHECK_THROWS_AS(ops::matmul(zeros({2, 3}), zeros({4, 3, 2})), ShapeError);
    CHECK_THROWS_WITH_AS(ops::matmul(zeros({2, 2}), zeros({2, 2}, DType::Float64)),
                         doctest::Contains("matmul: dtypes float32 and float64 differ"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(ops::matmul(zeros({2, 2}, DType::Int64), zeros({2, 2}, DType::Int64)),
                         doctest::Contains("matmul: needs float32, float64 or bfloat16, got int64"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(
        ops::matmul(zeros({2, 2}), Tensor::zeros({2, 2}, DType::Float32, Device::meta())),
        doctest::Contains("matmul: devices cpu and meta differ"), DeviceError);
  }
}

}  // namespace fsdptrain
