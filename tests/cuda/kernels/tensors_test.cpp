#include <vector>

#include <doctest/doctest.h>

#include "runtime/ops/arithmetic.h"
#include "runtime/tensor/views.h"
#include "tests/cuda/copies.h"

// Tensors of the device, where kernels of our own make their values.
namespace fsdptrain::testing {
namespace {

using Values = std::vector<double>;

}  // namespace

TEST_SUITE("cuda/kernels/tensors") {
  TEST_CASE("a tensor of one value has it in every element") {
    on_gpu([] {
      CHECK(Tensor::full({2, 2}, 3.5, DType::BFloat16, kGpu).to_vector() ==
            Values{3.5, 3.5, 3.5, 3.5});
      CHECK(Tensor::zeros({3}, DType::Int64, kGpu).to_vector() == Values{0, 0, 0});
      CHECK(Tensor::full({}, 7, DType::Float64, kGpu).item() == 7);
    });
  }

  TEST_CASE("the host sets single values, in the order of its calls") {
    on_gpu([] {
      Tensor tensor = counted_on_gpu(5);
      tensor.set_item(1, 10);
      tensor.set_item(4, 20);
      tensor.set_item(4, 30);
      CHECK(tensor.to_vector() == Values{0, 10, 2, 3, 30});
    });
  }

  TEST_CASE("a transposed tensor is made dense on its own device before it leaves") {
    on_gpu([] {
      const Tensor on_device = counted_on_gpu(6).alias({2, 3}, {3, 1}, 0);
      const Tensor transposed = views::transpose(on_device, 0, 1);
      const Tensor host = to_device(transposed, Device::cpu());
      CHECK(host.is_contiguous());
      CHECK(host.to_vector() == Values{0, 3, 1, 4, 2, 5});
      CHECK(
          to_device(views::transpose(Tensor::of({1, 2, 3, 4}).alias({2, 2}, {2, 1}, 0), 0, 1), kGpu)
              .to_vector() == Values{1, 3, 2, 4});
    });
  }

  TEST_CASE("ops of two streams that wait for each other compute what one stream would") {
    on_gpu([] {
      const Stream side = gpu().make_stream("side");
      const Stream& compute = gpu().compute_stream();
      Tensor x = counted_on_gpu(2000);
      for (int round = 0; round < 10; ++round) {
        side.wait(compute);
        Tensor squares;
        {
          const StreamGuard guard(side);
          squares = ops::affine(x, 1, 2);
        }
        const Tensor halves = ops::affine(x, 1, -1);
        compute.wait(side);
        x = ops::subtract(squares, halves);
        x = ops::add(x, halves);
      }
      CHECK(holds_counted(x, 20));
    });
  }
}

}  // namespace fsdptrain::testing
