#include "runtime/ops/linear.h"

#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"
#include "tests/support/naive_matmul.h"

namespace fsdptrain {

using testing::check_gradient;
using testing::column_major;
using testing::expect_close;
using testing::product_oracle;
using testing::product_tolerance;
using testing::random_tensor;

TEST_SUITE("runtime/ops/linear") {
  TEST_CASE("linear is x times the transposed weight plus the bias") {
    for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
      const Tensor x = random_tensor({2, 3, 7}, 1, 1, dtype);
      const Tensor w = random_tensor({5, 7}, 2, 1, dtype);
      const Tensor bias = random_tensor({5}, 3, 1, dtype);
      std::vector<double> expected =
          product_oracle(views::reshape(x, {6, 7}), views::transpose(w, 0, 1));
      expect_close(ops::linear(x, w), expected, product_tolerance(dtype, 7));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += bias.item(static_cast<std::int64_t>(i % 5));
      }
      const Tensor y = ops::linear(x, w, bias);
      CHECK(y.shape() == Shape{2, 3, 5});
      expect_close(y, expected, product_tolerance(dtype, 8));
      expect_close(ops::linear(column_major(views::reshape(x, {6, 7})), column_major(w), bias),
                   expected, product_tolerance(dtype, 8));
    }
    CHECK(ops::linear(Tensor::of({1, 2}), Tensor::of({3, 4}).alias({1, 2}, {2, 1}, 0)).item() ==
          11);
    CHECK(ops::linear(Tensor::zeros({2, 0}), Tensor::zeros({3, 0}), Tensor::of({1, 2, 3}))
              .to_vector() == std::vector<double>{1, 2, 3, 1, 2, 3});
    CHECK(ops::linear(Tensor::zeros({0, 2}), Tensor::zeros({3, 2})).shape() == Shape{0, 3});
  }

  TEST_CASE("linear_gelu is the gelu of linear, with its gradients") {
    testing::for_each_isa([] {
      for (const ops::GeluForm form : {ops::GeluForm::Erf, ops::GeluForm::Tanh}) {
        for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
          // More than one tile, the last one not whole; and sums of nothing.
          for (const Shape& shape : {Shape{2, 35, 19}, Shape{70, 3}, Shape{4, 0}}) {
            const Tensor x = random_tensor(shape, 1, 1, dtype);
            const Tensor w = random_tensor({133, shape.back()}, 2, 1, dtype);
            const Tensor bias = random_tensor({133}, 3, 1, dtype);
            const Tensor expected = ops::gelu(ops::linear(x, w, bias), form);
            CHECK(ops::linear_gelu(x, w, bias, form).to_vector() == expected.to_vector());
            CHECK(ops::linear_gelu(x, w, {}, form).to_vector() ==
                  ops::gelu(ops::linear(x, w), form).to_vector());
          }
        }
        check_gradient(
            [form](const std::vector<Tensor>& in) {
              return ops::linear_gelu(in[0], in[1], in[2], form);
            },
            {random_tensor({2, 3, 5}, 1), random_tensor({2, 5}, 2), random_tensor({2}, 3)});
      }
    });
    CHECK_THROWS_WITH_AS(
        ops::linear_gelu(Tensor::zeros({2, 3}), Tensor::zeros({3, 2}), {}, ops::GeluForm::Erf),
        doctest::Contains("linear: x of shape [2, 3] does not fit weight"), ShapeError);
  }

  TEST_CASE("a bfloat16 bias belongs to the sum before it is rounded") {
    const Tensor x = Tensor::of({256, 1}, DType::BFloat16).alias({1, 2}, {2, 1}, 0);
    const Tensor w = Tensor::of({1, 1}, DType::BFloat16).alias({1, 2}, {2, 1}, 0);
    CHECK(ops::linear(x, w, Tensor::of({1}, DType::BFloat16)).item() == 258);
  }

  TEST_CASE("gradients of linear match finite differences") {
    const auto linear = [](const std::vector<Tensor>& in) {
      return ops::linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor());
    };
    check_gradient(linear, {random_tensor({2, 3, 5}, 1), random_tensor({2, 5}, 2)});
    check_gradient(linear,
                   {random_tensor({3, 5}, 1), random_tensor({2, 5}, 2), random_tensor({2}, 3)});
    check_gradient(linear,
                   {random_tensor({5}, 1), random_tensor({2, 5}, 2), random_tensor({2}, 3)});
  }

  TEST_CASE("linear on meta counts the same bytes") {
    testing::check_same_memory([](Device device) {
      for (const DType dtype : {DType::Float32, DType::BFloat16}) {
        const Tensor x = Tensor::zeros({2, 60, 70}, dtype, device).set_requires_grad(true);
        const Tensor w = Tensor::zeros({90, 70}, dtype, device).set_requires_grad(true);
        const Tensor bias = Tensor::zeros({90}, dtype, device).set_requires_grad(true);
        autograd::backward(ops::linear(ops::transpose(x, 0, 1), w, bias),
                           {.grad_output = Tensor::zeros({60, 2, 90}, dtype, device)});
      }
    });
  }

  TEST_CASE("operands of linear that do not fit are named") {
    const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape); };
    CHECK_THROWS_WITH_AS(ops::linear(zeros({2, 3}), zeros({3, 2})),
                         doctest::Contains("linear: x of shape [2, 3] does not fit weight"),
                         ShapeError);
    CHECK_THROWS_AS(ops::linear(Tensor::zeros({}), zeros({3, 2})), ShapeError);
    CHECK_THROWS_WITH_AS(ops::linear(zeros({2, 3}), zeros({4, 3}), zeros({3})),
                         doctest::Contains("linear: bias of shape [3] does not fit weight"),
                         ShapeError);
  }
}

}  // namespace fsdptrain
