#include "runtime/optim/optimizer.h"

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/chunks.h"
#include "tests/support/contexts.h"

namespace fsdptrain::optim {
namespace {

using testing::chunk_of;
using testing::set_gradients;

double naive_norm(const std::vector<nn::FlatChunk>& chunks) {
  long double sum = 0;
  for (const nn::FlatChunk& chunk : chunks) {
    for (const nn::Segment& segment : chunk.segments) {
      for (std::int64_t i = segment.begin; segment.active && i < segment.end; ++i) {
        const long double value = chunk.gradients.item(i);
        sum += value * value;
      }
    }
  }
  return static_cast<double>(std::sqrt(sum));
}

}  // namespace

TEST_SUITE("runtime/optim/optimizer") {
  TEST_CASE("the gradient norm is that of all active segments") {
    testing::for_each_isa([] {
      for (const DType dtype : {DType::Float32, DType::Float64}) {
        for (const std::int64_t length : {0, 1, 8, 13, 40009}) {
          CAPTURE(length);
          std::vector<nn::FlatChunk> chunks{chunk_of(length, dtype, 1), chunk_of(3, dtype, 2)};
          set_gradients(chunks[0], 1);
          set_gradients(chunks[1], 2);
          CHECK(gradient_norm(chunks).item() == doctest::Approx(naive_norm(chunks)).epsilon(1e-14));
          chunks[0].segments[2].active = false;
          chunks[0].gradients.set_item(14, std::nan(""));
          CHECK(gradient_norm(chunks).item() == doctest::Approx(naive_norm(chunks)).epsilon(1e-14));
        }
      }
    });
  }

  TEST_CASE("the norm of nothing is 0, and squares beyond float32 count") {
    CHECK(gradient_norm({}).item() == 0);
    std::vector<nn::FlatChunk> chunks{chunk_of(3, DType::Float32, 1)};
    CHECK(gradient_norm(chunks).item() == 0);
    chunks[0].gradients.set_item(7, 3e30);
    chunks[0].gradients.set_item(17, 4e30);
    CHECK(gradient_norm(chunks).item() == doctest::Approx(5e30).epsilon(1e-6));
    chunks[0].gradients.set_item(8, std::numeric_limits<double>::infinity());
    CHECK(gradient_norm(chunks).item() == std::numeric_limits<double>::infinity());
    chunks[0].gradients.set_item(9, std::nan(""));
    CHECK(std::isnan(gradient_norm(chunks).item()));
  }

  TEST_CASE("the norm has the same bits for any number of threads") {
    std::vector<nn::FlatChunk> chunks{chunk_of(100003, DType::Float32, 1)};
    set_gradients(chunks[0], 3);
    testing::check_same_bits([&] { return std::vector<Tensor>{gradient_norm(chunks)}; });
  }

  TEST_CASE("clipping scales down to the largest norm and never up") {
    const auto factor = [](double norm, double max_norm) {
      return clip_factor(Tensor::of({norm}, DType::Float64), max_norm).item();
    };
    CHECK(factor(0.5, 1) == 1);
    CHECK(factor(0, 1) == 1);
    CHECK(factor(4, 1) == doctest::Approx(1 / (4 + 1e-6)).epsilon(1e-15));
    CHECK(factor(1, 1) == 1 / (1 + 1e-6));
    CHECK(factor(std::numeric_limits<double>::infinity(), 1) == 0);
    // A NaN must not become 1: the step would look healthy.
    CHECK(std::isnan(factor(std::nan(""), 1)));
  }

  TEST_CASE("norm and clipping on meta count the same bytes") {
    testing::check_same_memory([](Device device) {
      nn::FlatChunk chunk;
      chunk.parameters = Tensor::zeros({100000}, DType::Float32, device);
      chunk.gradients = Tensor::zeros({100000}, DType::Float32, device);
      chunk.segments = {{.name = "w", .begin = 0, .end = 100000}};
      clip_factor(gradient_norm({chunk}), 1);
    });
  }
}

}  // namespace fsdptrain::optim
