#include "runtime/ops/view.h"

#include <array>
#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {
namespace {

using testing::check_gradient;
using testing::random_tensor;
using Values = std::vector<double>;
using Sizes = std::vector<std::int64_t>;

}  // namespace

TEST_SUITE("runtime/ops/view") {
  TEST_CASE("views share bytes, copies do not") {
    const Tensor x = random_tensor({3, 4}, 1);
    for (const Tensor& view :
         {ops::reshape(x, {2, -1}), ops::transpose(x, 0, 1), ops::narrow(x, 1, 1, 2),
          ops::unsqueeze(x, 1), ops::squeeze(ops::unsqueeze(x, 0), 0), ops::expand(x, {5, 3, 4}),
          ops::contiguous(x)}) {
      CHECK(view.storage() == x.storage());
    }
    const Tensor t = ops::transpose(x, 0, 1);
    const Tensor parts[] = {x, x};
    for (const Tensor& copy :
         {ops::clone(x), ops::contiguous(t), ops::reshape(t, {12}), ops::cat(parts, 0)}) {
      CHECK(copy.storage() != x.storage());
      CHECK(copy.is_contiguous());
    }
    for (std::int64_t i = 0; i < 12; ++i) {
      CHECK(ops::reshape(t, {12}).item(i) == t.item(i));
    }
  }

  TEST_CASE_TEMPLATE("copies keep every value of every dtype", T, float, double, bfloat16, float16,
                     std::int64_t, std::int32_t, std::uint16_t, std::uint8_t) {
    Tensor x = Tensor::zeros({5, 3}, kDTypeOf<T>);
    for (std::int64_t i = 0; i < 15; ++i) {
      x.set_item(i, static_cast<double>(i));
    }
    CHECK(ops::clone(ops::transpose(x, 0, 1)).to_vector() ==
          Values{0, 3, 6, 9, 12, 1, 4, 7, 10, 13, 2, 5, 8, 11, 14});
    const Tensor rows[] = {ops::narrow(x, 0, 4, 1), ops::narrow(x, 0, 2, 0),
                           ops::narrow(x, 0, 1, 2)};
    CHECK(ops::cat(rows, 0).to_vector() == Values{12, 13, 14, 3, 4, 5, 6, 7, 8});
    const Tensor columns[] = {ops::narrow(x, 1, 2, 1), ops::narrow(x, 1, 0, 1)};
    CHECK(ops::cat(columns, -1).to_vector() == Values{2, 0, 5, 3, 8, 6, 11, 9, 14, 12});
  }

  TEST_CASE("split cuts where cat joins") {
    const Tensor x = random_tensor({2, 7, 3}, 2);
    for (const int dim : {1, -2}) {
      const std::vector<Tensor> pieces = ops::split(x, Sizes{3, 0, 4}, dim);
      REQUIRE(pieces.size() == 3);
      CHECK(pieces[0].shape() == Shape{2, 3, 3});
      CHECK(pieces[1].shape() == Shape{2, 0, 3});
      CHECK(pieces[2].storage() == x.storage());
      CHECK(ops::cat(pieces, dim).to_vector() == x.to_vector());
    }
    CHECK_THROWS_WITH_AS(
        ops::split(x, Sizes{3, 3}, 1),
        doctest::Contains("split: the sizes add up to 6 but dim 1 of [2, 7, 3] has 7"), ShapeError);
    CHECK_THROWS_AS(ops::split(x, Sizes{-1, 8}, 1), ShapeError);
    CHECK_THROWS_AS(ops::split(x, Sizes{7}, 3), ShapeError);
  }

  TEST_CASE("gradients of views and copies match finite differences") {
    const Tensor x = random_tensor({2, 3, 4}, 3);
    check_gradient([](const Tensor& t) { return ops::reshape(t, {4, -1}); }, x);
    check_gradient([](const Tensor& t) { return ops::reshape(ops::transpose(t, 0, 2), {24}); }, x);
    check_gradient([](const Tensor& t) { return ops::transpose(t, -1, 0); }, x);
    check_gradient([](const Tensor& t) { return ops::narrow(t, -2, 1, 2); }, x);
    check_gradient([](const Tensor& t) { return ops::narrow(t, 1, 3, 0); }, x);
    check_gradient([](const Tensor& t) { return ops::unsqueeze(t, -1); }, x);
    check_gradient([](const Tensor& t) { return ops::unsqueeze(t, 0); }, x);
    check_gradient([](const Tensor& t) { return ops::clone(t); }, x);
    check_gradient([](const Tensor& t) { return ops::contiguous(ops::transpose(t, 0, 1)); }, x);
    const Tensor thin = random_tensor({3, 1}, 4);
    check_gradient([](const Tensor& t) { return ops::squeeze(t, -1); }, thin);
    check_gradient([](const Tensor& t) { return ops::expand(t, {2, 3, 5}); }, thin);
    check_gradient([](const Tensor& t) { return ops::expand(t, {3, 1}); }, thin);
    check_gradient(
        [](const Tensor& t) {
          const std::vector<Tensor> pieces = ops::split(t, Sizes{1, 3}, 2);
          return ops::multiply(pieces[0], ops::square(pieces[1]));
        },
        x);
    check_gradient(
        [](const std::vector<Tensor>& in) {
          const Tensor parts[] = {in[0], in[1], in[0]};
          return ops::square(ops::cat(parts, 1));
        },
        {random_tensor({2, 3}, 5), random_tensor({2, 1}, 6)});
  }

  TEST_CASE("cat passes no gradient to operands that want none") {
    Tensor x = random_tensor({2}, 5);
    x.set_requires_grad(true);
    const Tensor parts[] = {random_tensor({3}, 6), x};
    autograd::backward(ops::cat(parts, 0),
                       {.grad_output = Tensor::of({1, 2, 3, 4, 5}, DType::Float64)});
    CHECK(x.grad().to_vector() == Values{4, 5});
  }

  TEST_CASE("layouts that do not exist are named") {
    const Tensor x = Tensor::zeros({2, 3});
    CHECK_THROWS_WITH_AS(ops::reshape(x, {4, -1}),
                         doctest::Contains("reshape: shape [2, 3] does not divide into [4, -1]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::reshape(x, {7}),
                         doctest::Contains("reshape: shape [2, 3] has not as many elements as [7]"),
                         ShapeError);
    CHECK_THROWS_AS(ops::transpose(x, 0, 2), ShapeError);
    CHECK_THROWS_AS(ops::narrow(x, 1, 2, 2), ShapeError);
    CHECK_THROWS_AS(ops::squeeze(x, 0), ShapeError);
    CHECK_THROWS_AS(ops::squeeze(x, 5), ShapeError);
    CHECK_THROWS_AS(ops::expand(x, {3, 3}), ShapeError);
    CHECK_THROWS_WITH_AS(ops::cat({}, 0), doctest::Contains("cat: needs at least one tensor"),
                         ShapeError);
    const Tensor wrong_size[] = {x, Tensor::zeros({2, 4})};
    CHECK_THROWS_WITH_AS(ops::cat(wrong_size, 0),
                         doctest::Contains("cat: shapes [2, 3] and [2, 4] differ outside dim 0"),
                         ShapeError);
    const Tensor wrong_dims[] = {x, Tensor::zeros({2})};
    CHECK_THROWS_AS(ops::cat(wrong_dims, 0), ShapeError);
    const Tensor wrong_dtype[] = {x, Tensor::zeros({2, 3}, DType::Int64)};
    CHECK_THROWS_WITH_AS(ops::cat(wrong_dtype, 0),
                         doctest::Contains("cat: dtypes float32 and int64 differ"), DTypeError);
    const Tensor scalars[] = {Tensor::zeros({}), Tensor::zeros({})};
    CHECK_THROWS_AS(ops::cat(scalars, 0), ShapeError);
  }

  TEST_CASE("undefined tensors are named errors") {
    const Tensor none;
    const auto check_refused = [](const char* text, const std::function<void()>& op) {
      CHECK_THROWS_WITH_AS(op(), doctest::Contains(text), StorageError);
    };
    check_refused("reshape: a tensor is undefined", [&] { ops::reshape(none, {-1}); });
    check_refused("reshape: a tensor is undefined", [&] { ops::reshape(none, Shape{1}); });
    check_refused("transpose: a tensor is undefined", [&] { ops::transpose(none, 0, 1); });
    check_refused("narrow: a tensor is undefined", [&] { ops::narrow(none, 0, 0, 1); });
    check_refused("unsqueeze: a tensor is undefined", [&] { ops::unsqueeze(none, 0); });
    check_refused("squeeze: a tensor is undefined", [&] { ops::squeeze(none, 0); });
    check_refused("expand: a tensor is undefined", [&] { ops::expand(none, {2}); });
    check_refused("contiguous: a tensor is undefined", [&] { ops::contiguous(none); });
    check_refused("clone: a tensor is undefined", [&] { ops::clone(none); });
    check_refused("split: a tensor is undefined", [&] { ops::split(none, Sizes{1}, 0); });
    const Tensor second_missing[] = {Tensor::zeros({1}), none};
    check_refused("cat: a tensor is undefined", [&] { ops::cat(second_missing, 0); });
    check_refused("stack_adjacent: a tensor is", [&] { ops::stack_adjacent(second_missing); });
    check_refused("add: a tensor is undefined", [&] { ops::add(Tensor::zeros({1}), none); });
  }

  TEST_CASE("views on meta take no memory and copies take what they take on the CPU") {
    testing::check_same_memory([](Device device) {
      Tensor x = Tensor::zeros({40, 30}, DType::Float32, device);
      x.set_requires_grad(true);
      const Tensor t = ops::transpose(x, 0, 1);
      const Tensor parts[] = {ops::reshape(t, {20, 60}), ops::reshape(x, {20, 60})};
      autograd::backward(ops::cat(parts, 1),
                         {.grad_output = Tensor::zeros({20, 120}, DType::Float32, device)});
      CHECK(x.grad().shape() == x.shape());
    });
  }
}

}  // namespace fsdptrain
