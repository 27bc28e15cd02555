#include "runtime/ops/embedding.h"

#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"
#include "tests/support/slots.h"

namespace fsdptrain {
namespace {

using testing::check_gradient;
using testing::check_same_bits;
using testing::check_same_memory;
using testing::column_major;
using testing::expect_close;
using testing::for_each_isa;
using testing::random_tensor;

Tensor indices_of(std::initializer_list<std::int64_t> values, const Shape& shape) {
  return Tensor::from<std::int64_t>({values.begin(), values.size()}, shape);
}

// Indices in [0, size) with many repeats of the first.
Tensor random_indices(const Shape& shape, std::int64_t size, DType dtype = DType::Int64) {
  Tensor indices = Tensor::empty(shape, dtype);
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    const auto word = philox(static_cast<std::uint64_t>(i), 0, 77).word[0];
    indices.set_item(i, i % 3 == 0 ? 0 : static_cast<double>(word % size));
  }
  return indices;
}

}  // namespace

TEST_SUITE("runtime/ops/embedding") {
  TEST_CASE_TEMPLATE("embedding picks rows and its gradient adds repeated ones", T, float, double,
                     bfloat16) {
    for_each_isa([] {
      for (const std::int64_t width : {1, 3, 521}) {
        for (const DType index_dtype : {DType::Int64, DType::Int32}) {
          CAPTURE(width);
          Tensor weight = random_tensor({13, width}, 1, 1.0, kDTypeOf<T>);
          weight.set_requires_grad(true);
          const Tensor indices = random_indices({2, 11}, 13, index_dtype);
          const Tensor y = ops::embedding(weight, indices);
          REQUIRE(y.shape() == Shape{2, 11, width});
          const Tensor dy = random_tensor(y.shape(), 2, 1.0, kDTypeOf<T>);
          std::vector<double> picked;
          std::vector<double> gradient(static_cast<std::size_t>(weight.numel()));
          for (std::int64_t i = 0; i < y.numel(); ++i) {
            const auto row = static_cast<std::int64_t>(indices.item(i / width));
            picked.push_back(weight.item(row * width + i % width));
            gradient[static_cast<std::size_t>(row * width + i % width)] += dy.item(i);
          }
          expect_close(y, picked, 0);
          autograd::backward(y, {.grad_output = dy});
          expect_close(weight.grad(), gradient);
        }
      }
    });
  }

  TEST_CASE("many repeats of one index are rounded once") {
    Tensor weight = Tensor::zeros({2, 1}, DType::BFloat16);
    weight.set_requires_grad(true);
    const Tensor y = ops::embedding(weight, Tensor::zeros({1000}, DType::Int64));
    autograd::backward(y, {.grad_output = Tensor::full(y.shape(), 1, DType::BFloat16)});
    CHECK(weight.grad().to_vector() == std::vector<double>{1000, 0});
  }

  TEST_CASE("the gradient goes into a slot of another dtype, first replacing, then adding") {
    for_each_isa([] {
      Tensor weight = Tensor::zeros({3, 2}, DType::BFloat16);
      const auto slot = testing::give_slot(weight, Tensor::full({3, 2}, 7, DType::Float32));
      const auto run = [&] {
        const Tensor y = ops::embedding(weight, indices_of({2, 0, 2}, {3}));
        autograd::backward(y, {.grad_output = Tensor::full(y.shape(), 1.5, DType::BFloat16)});
      };
      run();
      CHECK(slot->buffer.to_vector() == std::vector<double>{1.5, 1.5, 0, 0, 3, 3});
      run();
      CHECK(slot->buffer.to_vector() == std::vector<double>{3, 3, 0, 0, 6, 6});
    });
  }

  TEST_CASE("embedding takes empty, strided and scalar operands") {
    const Tensor weight = random_tensor({5, 3}, 3);
    CHECK(ops::embedding(weight, Tensor::empty({0}, DType::Int64)).shape() == Shape{0, 3});
    CHECK(ops::embedding(Tensor::empty({5, 0}), indices_of({1}, {})).shape() == Shape{0});
    const Tensor indices = indices_of({0, 1, 2, 3, 4, 0}, {3, 2});
    const Tensor y = ops::embedding(column_major(weight), views::transpose(indices, 0, 1));
    expect_close(y, ops::embedding(weight, indices_of({0, 2, 4, 1, 3, 0}, {6})).to_vector(), 0);
  }

  TEST_CASE("gradients of embedding and gather match finite differences") {
    const Tensor rows = indices_of({4, 0, 4, 1}, {2, 2});
    check_gradient([&](const Tensor& w) { return ops::embedding(w, rows); },
                   random_tensor({5, 3}, 4));
    const Tensor picks = random_indices({2, 4, 3}, 5);
    check_gradient([&](const Tensor& x) { return ops::gather(x, 1, picks); },
                   random_tensor({2, 5, 3}, 5));
    const Tensor last = random_indices({4, 1}, 7);
    check_gradient([&](const Tensor& x) { return ops::gather(x, -1, last); },
                   random_tensor({4, 7}, 6));
  }

  TEST_CASE_TEMPLATE("gather picks along one dimension", T, float, double, bfloat16, std::int64_t,
                     std::uint8_t) {
    for_each_isa([] {
      for (const int dim : {0, 1, 2}) {
        CAPTURE(dim);
        const Shape shape{3, 5, 521};
        Shape picked = shape;
        picked[dim] = 2;
        const Tensor x = Tensor::empty(shape, kDTypeOf<T>);
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          Tensor(x).set_item(i, static_cast<double>(i % 127));
        }
        const Tensor indices = random_indices(picked, shape[dim], DType::Int32);
        std::vector<double> expected;
        for (std::int64_t i = 0; i < indices.numel(); ++i) {
          std::int64_t place[3] = {i / (picked[1] * picked[2]), i / picked[2] % picked[1],
                                   i % picked[2]};
          place[dim] = static_cast<std::int64_t>(indices.item(i));
          expected.push_back(x.item((place[0] * shape[1] + place[1]) * shape[2] + place[2]));
        }
        expect_close(ops::gather(x, dim, indices), expected, 0);
      }
    });
  }

  TEST_CASE("the bits of embedding gradients do not depend on threads or runs") {
    check_same_bits([] {
      Tensor weight = random_tensor({101, 67}, 7, 1.0, DType::Float32);
      weight.set_requires_grad(true);
      const Tensor y = ops::embedding(weight, random_indices({3000}, 101));
      autograd::backward(y, {.grad_output = random_tensor(y.shape(), 8, 1.0, DType::Float32)});
      Tensor x = random_tensor({50, 31}, 9, 1.0, DType::Float32);
      x.set_requires_grad(true);
      const Tensor z = ops::gather(x, 0, random_indices({900, 31}, 50));
      autograd::backward(z, {.grad_output = random_tensor(z.shape(), 8, 1.0, DType::Float32)});
      return std::vector{y, weight.grad(), x.grad()};
    });
  }

  TEST_CASE("embedding and gather count the same memory on meta") {
    check_same_memory([](Device device) {
      Tensor weight = Tensor::full({101, 67}, 1, DType::Float32, device);
      weight.set_requires_grad(true);
      const Tensor indices = Tensor::zeros({30, 5}, DType::Int64, device);
      autograd::backward(ops::sum(ops::embedding(weight, indices)));
      const Tensor picks = Tensor::zeros({101, 2}, DType::Int32, device);
      autograd::backward(ops::sum(ops::gather(weight, 1, picks)));
    });
  }

  TEST_CASE("indices changed by hand between forward and backward are noticed") {
    Tensor x = random_tensor({4, 3}, 1).set_requires_grad(true);
    for (const bool is_embedding : {true, false}) {
      const std::vector<std::int64_t> rows(is_embedding ? 2 : 12, 1);
      const Tensor indices =
          Tensor::from<std::int64_t>(rows, is_embedding ? Shape{2} : Shape{4, 3});
      const Tensor y =
          ops::sum(is_embedding ? ops::embedding(x, indices) : ops::gather(x, 1, indices));
      indices.mutable_values<std::int64_t>()[1] = 0;
      CHECK_THROWS_WITH_AS(autograd::backward(y),
                           doctest::Contains("saved for backward was changed in place"),
                           AutogradError);
    }
    CHECK_FALSE(x.grad().defined());
  }

  TEST_CASE("embedding and gather refuse what they cannot do") {
    const Tensor weight = Tensor::zeros({5, 3});
    CHECK_THROWS_WITH_AS(ops::embedding(weight, indices_of({0, 5, 1}, {3})),
                         doctest::Contains("embedding: index 5 at position 1 is outside [0, 5)"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::embedding(weight, indices_of({0, 1, -1}, {3})),
                         doctest::Contains("embedding: index -1 at position 2 is outside [0, 5)"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::embedding(weight, Tensor::zeros({2})),
                         doctest::Contains("embedding: indices must be int64 or int32"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(ops::embedding(Tensor::zeros({5}), indices_of({0}, {1})),
                         doctest::Contains("embedding: the weight must be [rows, width], got [5]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(
        ops::embedding(Tensor::zeros({5, 3}, DType::Float16), indices_of({0}, {1})),
        doctest::Contains("embedding: needs float32, float64 or bfloat16, got float16"),
        DTypeError);
    CHECK_THROWS_WITH_AS(ops::embedding(weight, Tensor::zeros({1}, DType::Int64, Device::meta())),
                         doctest::Contains("embedding: devices cpu and meta differ"), DeviceError);
    CHECK_THROWS_WITH_AS(
        ops::gather(weight, 1, indices_of({0, 3}, {1, 2})),
        doctest::Contains("gather: the shape of indices [1, 2] differs from [5, 3] outside dim 1"),
        ShapeError);
    CHECK_THROWS_WITH_AS(ops::gather(weight, 0, indices_of({0, 3, 5}, {1, 3})),
                         doctest::Contains("gather: index 5 at position 2 is outside [0, 5)"),
                         ShapeError);
  }
}

}  // namespace fsdptrain
