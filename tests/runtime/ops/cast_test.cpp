#include "runtime/ops/cast.h"

#include <vector>

#include <doctest/doctest.h>

#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {

TEST_SUITE("runtime/ops/cast") {
  TEST_CASE("cast rounds to the nearest value, and truncates towards integers") {
    testing::for_each_isa([] {
      const Tensor x = Tensor::of({1.0, 1.00390625, 1.01171875, -2.75}, DType::Float64);
      CHECK(ops::cast(x, DType::BFloat16).to_vector() ==
            std::vector<double>{1, 1, 1.015625, -2.75});
      CHECK(ops::cast(x, DType::Float16).to_vector() == x.to_vector());
      CHECK(ops::cast(x, DType::Int32).to_vector() == std::vector<double>{1, 1, 1, -2});
      const Tensor same = ops::cast(x, DType::Float64);
      CHECK(same.storage() == x.storage());
      const Tensor strided = testing::column_major(testing::random_tensor({3, 5}, 1));
      testing::expect_close(ops::cast(strided, DType::Float32), strided.to_vector(), 1e-7);
    });
  }

  TEST_CASE("float64 and integers are rounded to 16-bit floats once") {
    // Just above a tie, by less than float32 can tell: rounding twice would fall to the even side.
    const double above = 1 + 0x1p-8 + 0x1p-40;
    const Tensor x = Tensor::of({above, -above, 1 + 0x1p-8, 1 + 0x1p-8 - 0x1p-40}, DType::Float64);
    CHECK(ops::cast(x, DType::BFloat16).to_vector() ==
          std::vector<double>{1 + 0x1p-7, -1 - 0x1p-7, 1, 1});
    const Tensor y = Tensor::of({1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11}, DType::Float64);
    CHECK(ops::cast(y, DType::Float16).to_vector() == std::vector<double>{1 + 0x1p-10, 1});
    // 2^24 + 2^16 + 1 is no float32, and lies just above the tie of 2^24 and 2^24 + 2^17.
    const Tensor n = Tensor::of({16777216.0 + 65536 + 1, 16777216.0 + 65536}, DType::Int32);
    CHECK(ops::cast(n, DType::BFloat16).to_vector() ==
          std::vector<double>{16777216.0 + 131072, 16777216.0});
  }

  TEST_CASE("the gradient of a cast is cast back, and integers have none") {
    Tensor x = Tensor::of({0.5, -1.25}, DType::Float64);
    x.set_requires_grad(true);
    autograd::backward(ops::sum(ops::scale(ops::cast(x, DType::BFloat16), 3)));
    CHECK(x.grad().dtype() == DType::Float64);
    CHECK(x.grad().to_vector() == std::vector<double>{3, 3});
    CHECK(!ops::cast(x, DType::Int64).requires_grad());
    CHECK(ops::cast(Tensor::zeros({0, 3}), DType::Float64).shape() == Shape{0, 3});
  }

  TEST_CASE("cast counts the same memory on meta") {
    testing::check_same_memory([](Device device) {
      Tensor x = Tensor::full({33, 7}, 1, DType::Float32, device);
      x.set_requires_grad(true);
      autograd::backward(ops::sum(ops::cast(x, DType::BFloat16)));
    });
  }
}

}  // namespace fsdptrain
