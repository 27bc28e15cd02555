#include "runtime/tensor/tensor.h"

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/views.h"

namespace fsdptrain {

TEST_SUITE("runtime/tensor/tensor") {
  TEST_CASE("a tensor of values has them, rounded to its dtype") {
    CHECK(Tensor::of({1.5, -2, 3}).to_vector() == std::vector<double>{1.5, -2, 3});
    CHECK(Tensor::of({0.1}, DType::Float64).item() == 0.1);
    CHECK(Tensor::of({0.1}).item() == double{0.1f});
    CHECK(Tensor::of({1.00390625}, DType::BFloat16).item() == 1);
    CHECK(Tensor::of({1 + 0x1p-11}, DType::Float16).item() == 1);
    CHECK(Tensor::of({-7.9, 7.9}, DType::Int64).to_vector() == std::vector<double>{-7, 7});
    CHECK(Tensor::of({300, -5}, DType::UInt8).to_vector() == std::vector<double>{255, 0});
    const Tensor none = Tensor::of({});
    CHECK(none.shape() == Shape{0});
    CHECK(none.to_vector().empty());
  }

  TEST_CASE_TEMPLATE("a tensor from host values copies them", T, float, double, std::int64_t,
                     std::int32_t, std::uint16_t, std::uint8_t) {
    std::vector<T> values{T(1), T(2), T(3), T(4), T(5), std::numeric_limits<T>::max()};
    const Tensor x = Tensor::from<T>(values, {2, 3});
    values[0] = T(9);
    CHECK(x.dtype() == kDTypeOf<T>);
    CHECK(x.template values<T>()[0] == T(1));
    CHECK(x.template values<T>()[5] == std::numeric_limits<T>::max());
    CHECK(x.item(4) == 5);
    x.template mutable_values<T>()[1] = T(8);
    CHECK(x.item(1) == 8);
    CHECK_THROWS_WITH_AS(Tensor::from<T>(values, {7}), doctest::Contains("from: shape [7] of"),
                         ShapeError);
    CHECK(Tensor::from<T>(std::span<const T>(), {0, 5}).numel() == 0);
  }

  TEST_CASE("elements are counted in row-major order whatever the strides") {
    const Tensor x = Tensor::of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    const Tensor y = x.alias({3, 2}, {1, 6}, 2);
    CHECK(y.to_vector() == std::vector<double>{2, 8, 3, 9, 4, 10});
    CHECK(y.size(-1) == 2);
    CHECK(y.size(0) == 3);
    Tensor z = y;
    z.set_item(3, -1);
    CHECK(x.item(9) == -1);
    CHECK_THROWS_WITH_AS(y.item(6), doctest::Contains("item: index 6 is outside shape [3, 2]"),
                         ShapeError);
    CHECK_THROWS_AS(y.item(-1), ShapeError);
    CHECK_THROWS_WITH_AS(y.bytes(), doctest::Contains("bytes: needs a contiguous tensor"),
                         ShapeError);
    CHECK_THROWS_AS(y.size(2), ShapeError);
  }

  TEST_CASE("an alias may not leave its storage") {
    const Tensor x = Tensor::zeros({12});
    CHECK_NOTHROW(x.alias({3, 4}, {4, 1}, 0));
    CHECK_NOTHROW(x.alias({0, 4}, {4, 1}, 12));
    CHECK_THROWS_WITH_AS(
        x.alias({3, 4}, {4, 1}, 1),
        doctest::Contains("over: shape [3, 4] with strides [4, 1] at 1 does not fit 12 elements"),
        ShapeError);
    CHECK_THROWS_AS(x.alias({3}, {6}, 0), ShapeError);
    CHECK_THROWS_AS(x.alias({1}, {1}, -1), ShapeError);
  }

  TEST_CASE("a layout that is none, or that overflows, is refused") {
    const Tensor x = Tensor::zeros({12});
    constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
    CHECK_THROWS_WITH_AS(x.alias({3, 4}, {1}, 0),
                         doctest::Contains("over: shape [3, 4] needs 2 strides, got [1]"),
                         ShapeError);
    CHECK_THROWS_AS(x.alias({3}, {4, 1}, 0), ShapeError);
    CHECK_THROWS_WITH_AS(x.alias({2, 2}, {4, -1}, 1),
                         doctest::Contains("over: strides must not be negative, got [4, -1]"),
                         ShapeError);
    CHECK_THROWS_AS(x.alias({5}, {std::int64_t{1} << 62}, 0), ShapeError);
    CHECK_THROWS_AS(x.alias({2, 2}, {kHuge, kHuge}, 0), ShapeError);
    CHECK_THROWS_AS(x.alias({2}, {1}, kHuge), ShapeError);
    CHECK_THROWS_AS(x.alias({0}, {1}, 13), ShapeError);
    CHECK_THROWS_WITH_AS(Tensor().alias({1}, {1}, 0),
                         doctest::Contains("alias: the tensor is undefined"), StorageError);
    CHECK_THROWS_WITH_AS(Tensor::over(nullptr, DType::Float32, {1}, {1}, 0),
                         doctest::Contains("over: the storage is undefined"), StorageError);
  }

  TEST_CASE("values are asked for by their own dtype") {
    const Tensor x = Tensor::zeros({2}, DType::BFloat16);
    CHECK_NOTHROW(x.values<bfloat16>());
    CHECK_THROWS_WITH_AS(x.values<float>(),
                         doctest::Contains("values: the tensor is bfloat16, not float32"),
                         DTypeError);
  }

  TEST_CASE("host access is for the CPU") {
    Tensor x = Tensor::zeros({2}, DType::Float32, Device::meta());
    CHECK_THROWS_WITH_AS(
        x.item(0), doctest::Contains("item: the tensor is on meta, without values"), DeviceError);
    CHECK_THROWS_WITH_AS(x.set_item(0, 1),
                         doctest::Contains("set_item: the tensor is on meta, without values"),
                         DeviceError);
    CHECK_THROWS_WITH_AS(x.bytes(), doctest::Contains("bytes: needs a tensor on cpu"), DeviceError);
    CHECK_THROWS_WITH_AS(Tensor::zeros({1}, DType::Float32, Device::cuda(2)),
                         doctest::Contains("cuda:2: this program was built without CUDA"),
                         DeviceError);
  }

  TEST_CASE("an undefined tensor has no device, no bytes and no gradient") {
    const Tensor none;
    CHECK_FALSE(none.defined());
    CHECK_FALSE(none.requires_grad());
    CHECK(none.is_leaf());
    CHECK_THROWS_WITH_AS(none.device(), doctest::Contains("the tensor is undefined"), StorageError);
    CHECK_THROWS_WITH_AS(none.view(), doctest::Contains("the tensor is undefined"), StorageError);
    CHECK_THROWS_AS(none.item(), StorageError);
  }

  TEST_CASE("sizes whose bytes overflow are refused before anything is allocated") {
    const MemoryCounters before = current_context().allocator(Device::meta()).counters();
    constexpr std::int64_t kBig = std::int64_t{1} << 61;
    CHECK_THROWS_WITH_AS(Tensor::empty({kBig}, DType::Float64, Device::meta()),
                         doctest::Contains("elements of float64 overflow 64 bits of bytes"),
                         ShapeError);
    Shape negative{3};
    negative[0] = -3;
    CHECK_THROWS_WITH_AS(Tensor::empty(negative),
                         doctest::Contains("empty: sizes must not be negative, got [-3]"),
                         ShapeError);
    CHECK(current_context().allocator(Device::meta()).counters() == before);
  }

  TEST_CASE("only floating tensors take gradients") {
    for (const DType dtype : {DType::Int64, DType::Int32, DType::UInt16, DType::UInt8}) {
      Tensor x = Tensor::zeros({2}, dtype);
      CHECK_THROWS_WITH_AS(x.set_requires_grad(true),
                           doctest::Contains("requires_grad: needs a floating dtype, got"),
                           DTypeError);
      CHECK_NOTHROW(x.set_requires_grad(false));
    }
    Tensor x = Tensor::zeros({2}, DType::BFloat16);
    CHECK_THROWS_WITH_AS(x.grad(),
                         doctest::Contains("grad: the tensor of shape [2] does not require grad"),
                         AutogradError);
    CHECK(x.set_requires_grad(true).requires_grad());
    CHECK(x.is_leaf());
    CHECK_FALSE(x.grad().defined());
    CHECK_FALSE(x.detach().requires_grad());
    CHECK(x.detach().storage() == x.storage());
    CHECK_FALSE(x.set_requires_grad(false).requires_grad());
  }

  TEST_CASE("full fills every dtype, and counts under its category") {
    for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                              DType::Int64, DType::Int32, DType::UInt16, DType::UInt8}) {
      CHECK(Tensor::full({3}, 2, dtype).to_vector() == std::vector<double>{2, 2, 2});
    }
    CHECK(std::isnan(Tensor::full({1}, std::nan("")).item()));
    const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
    const std::int64_t before = counters.live_of(MemoryCategory::Optimizer);
    const Tensor x = Tensor::zeros({100}, DType::Float32, Device::cpu(), MemoryCategory::Optimizer);
    CHECK(counters.live_of(MemoryCategory::Optimizer) == before + 448);
  }
}

}  // namespace fsdptrain
