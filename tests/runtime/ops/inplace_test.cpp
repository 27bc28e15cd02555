#include "runtime/ops/inplace.h"

#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {

TEST_SUITE("runtime/ops/inplace") {
  TEST_CASE_TEMPLATE("in-place ops write through views", T, float, double, bfloat16) {
    testing::for_each_isa([] {
      const Tensor x = Tensor::full({3, 2}, 1, kDTypeOf<T>);
      const Tensor column = views::narrow(x, 1, 1, 1);
      ops::fill_(column, 4);
      CHECK(x.to_vector() == std::vector<double>{1, 4, 1, 4, 1, 4});
      ops::scale_(column, 0.5);
      CHECK(x.to_vector() == std::vector<double>{1, 2, 1, 2, 1, 2});
      ops::add_(x, Tensor::of({1, 3}, kDTypeOf<T>), -2);
      CHECK(x.to_vector() == std::vector<double>{-1, -4, -1, -4, -1, -4});
      ops::add_(x, x);
      CHECK(x.to_vector() == std::vector<double>{-2, -8, -2, -8, -2, -8});
      ops::copy_(views::transpose(x, 0, 1), Tensor::of({1, 2, 3}, DType::Int64));
      CHECK(x.to_vector() == std::vector<double>{1, 1, 2, 2, 3, 3});
    });
  }

  TEST_CASE_TEMPLATE("lerp_ moves an average by its weight, without history", T, float, double,
                     bfloat16) {
    testing::for_each_isa([] {
      for (const std::int64_t size : {0, 1, 61, 16411}) {
        const Tensor average = testing::random_tensor({size}, 1, 2, kDTypeOf<T>);
        const Tensor value = testing::random_tensor({size}, 2, 2, kDTypeOf<T>);
        std::vector<double> expected;
        for (std::int64_t i = 0; i < size; ++i) {
          expected.push_back(average.item(i) + 0.0625 * (value.item(i) - average.item(i)));
        }
        ops::lerp_(average, value, 0.0625);
        testing::expect_close(average, expected);
      }
    });
    // Of flat chunks that are parts of a buffer; 0 keeps, 1 copies where the difference is exact.
    const Tensor buffer = Tensor::of({1, 2, 3, 4}, kDTypeOf<T>);
    const Tensor part = views::narrow(buffer, 0, 1, 2);
    Tensor value = Tensor::of({6, 9}, kDTypeOf<T>);
    ops::lerp_(part, value, 0);
    CHECK(buffer.to_vector() == std::vector<double>{1, 2, 3, 4});
    ops::lerp_(part, value, 0.5);
    CHECK(buffer.to_vector() == std::vector<double>{1, 4, 6, 4});
    value.set_requires_grad(true);
    CHECK_THROWS_WITH_AS(ops::lerp_(part, value, 0.5),
                         doctest::Contains("lerp_: the source of shape [2] requires grad"),
                         AutogradError);
    const autograd::NoGradGuard no_grad;
    ops::lerp_(part, value, 1);
    CHECK(buffer.to_vector() == std::vector<double>{1, 6, 9, 4});
    CHECK_THROWS_WITH_AS(ops::lerp_(part, Tensor::zeros({2}, DType::Float16), 1),
                         doctest::Contains("lerp_: dtypes"), DTypeError);
  }

  TEST_CASE("an in-place write is noticed by the backward that needs the old value") {
    Tensor x = Tensor::of({1, 2});
    x.set_requires_grad(true);
    const Tensor factor = Tensor::of({3, 4});
    const Tensor y = ops::sum(ops::multiply(x, factor));
    for (const auto& write : std::vector<std::function<void()>>{
             [&] { ops::fill_(factor, 0); }, [&] { ops::scale_(factor, 2); },
             [&] { ops::add_(factor, factor); }, [&] { ops::copy_(factor, factor); },
             [&] { ops::lerp_(factor, factor, 0.5); }}) {
      const auto version = factor.storage()->version();
      write();
      CHECK(factor.storage()->version() == version + 1);
    }
    CHECK_THROWS_WITH_AS(autograd::backward(y), doctest::Contains("was changed in place"),
                         AutogradError);
  }

  TEST_CASE("in-place ops refuse tensors that autograd knows") {
    Tensor leaf = Tensor::zeros({2});
    leaf.set_requires_grad(true);
    const Tensor y = ops::scale(leaf, 2);
    const Tensor plain = Tensor::zeros({2});
    CHECK_THROWS_WITH_AS(ops::fill_(leaf, 1),
                         doctest::Contains("fill_: in-place on a leaf that requires grad"),
                         AutogradError);
    CHECK_THROWS_WITH_AS(ops::copy_(leaf, plain), doctest::Contains("copy_: in-place on a leaf"),
                         AutogradError);
    CHECK_THROWS_WITH_AS(ops::scale_(y, 1),
                         doctest::Contains("scale_: in-place on a tensor with history"),
                         AutogradError);
    CHECK_THROWS_WITH_AS(ops::add_(y, plain),
                         doctest::Contains("add_: in-place on a tensor with history"),
                         AutogradError);
    CHECK_THROWS_WITH_AS(ops::copy_(plain, leaf),
                         doctest::Contains("copy_: the source of shape [2] requires grad"),
                         AutogradError);
    const autograd::NoGradGuard no_grad;
    ops::fill_(leaf, 5);
    CHECK(leaf.item(1) == 5);
  }

  TEST_CASE("in-place ops refuse a source that overlaps the target in another layout") {
    const Tensor x = Tensor::of({1, 2, 3, 4, 5, 6, 7, 8, 9});
    const Tensor square = views::reshape(x, {3, 3});
    CHECK_THROWS_WITH_AS(
        ops::copy_(square, views::transpose(square, 0, 1)),
        doctest::Contains("copy_: the source may overlap the target of shape [3, 3] in another "
                          "layout (strides [1, 3] at 0 and [3, 1] at 0): clone() it"),
        ShapeError);
    CHECK_THROWS_WITH_AS(ops::add_(square, views::narrow(square, 0, 1, 1)),
                         doctest::Contains("add_: the source may overlap"), ShapeError);
    CHECK_THROWS_AS(ops::copy_(views::narrow(x, 0, 1, 8), views::narrow(x, 0, 0, 8)), ShapeError);
    CHECK(x.to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9});
    ops::copy_(views::narrow(x, 0, 0, 3), views::narrow(x, 0, 3, 3));
    ops::add_(views::narrow(x, 0, 6, 3), views::narrow(x, 0, 6, 3));
    CHECK(x.to_vector() == std::vector<double>{4, 5, 6, 4, 5, 6, 14, 16, 18});
    ops::copy_(square, ops::clone(views::transpose(square, 0, 1)));
    CHECK(x.to_vector() == std::vector<double>{4, 4, 14, 5, 5, 16, 6, 6, 18});
  }

  TEST_CASE("in-place ops refuse expanded targets and operands that do not fit") {
    const Tensor expanded = views::expand(Tensor::zeros({1, 3}), {2, 3});
    CHECK_THROWS_WITH_AS(ops::fill_(expanded, 1),
                         doctest::Contains("fill_: in-place on an expanded tensor of shape [2, 3]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::add_(expanded, Tensor::zeros({3})),
                         doctest::Contains("add_: in-place on an expanded"), ShapeError);
    CHECK_THROWS_WITH_AS(ops::copy_(Tensor::zeros({3}), Tensor::zeros({2, 3})),
                         doctest::Contains("copy_: shape [2, 3] does not broadcast to [3]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::add_(Tensor::zeros({3}), Tensor::zeros({3}, DType::Float64)),
                         doctest::Contains("add_: dtypes float32 and float64 differ"), DTypeError);
    CHECK_THROWS_WITH_AS(ops::scale_(Tensor::zeros({3}, DType::Int64), 2),
                         doctest::Contains("scale_: needs float32, float64 or bfloat16, got int64"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(
        ops::copy_(Tensor::zeros({3}), Tensor::zeros({3}, DType::Float32, Device::meta())),
        doctest::Contains("copy_: devices cpu and meta differ"), DeviceError);
    CHECK_THROWS_WITH_AS(ops::fill_(Tensor(), 1), doctest::Contains("fill_: a tensor is undefined"),
                         StorageError);
    CHECK_THROWS_WITH_AS(ops::copy_(Tensor::zeros({3}), Tensor()),
                         doctest::Contains("copy_: a tensor is undefined"), StorageError);
  }
}

}  // namespace fsdptrain
