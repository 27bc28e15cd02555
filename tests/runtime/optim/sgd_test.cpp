#include "runtime/optim/sgd.h"

#include <vector>

#include <doctest/doctest.h>

#include "tests/support/chunks.h"
#include "tests/support/contexts.h"

namespace fsdptrain::optim {
namespace {

using testing::chunk_of;
using testing::expect_close;
using testing::set_gradients;

}  // namespace

TEST_SUITE("runtime/optim/sgd") {
  TEST_CASE_TEMPLATE("four steps equal the formula in double", T, float, double) {
    for (const double momentum : {0.0, 0.9}) {
      for (const double weight_decay : {0.0, 0.1}) {
        CAPTURE(momentum);
        CAPTURE(weight_decay);
        testing::for_each_isa([&] {
          std::vector<nn::FlatChunk> chunks{chunk_of(13, kDTypeOf<T>, 1)};
          nn::FlatChunk& chunk = chunks[0];
          Sgd optimizer(chunks, {.momentum = momentum, .weight_decay = weight_decay});
          std::vector<double> p = chunk.parameters.to_vector();
          std::vector<double> b(p.size());
          for (std::uint64_t step = 0; step < 4; ++step) {
            set_gradients(chunk, step);
            chunk.segments[0].active = step != 1;
            const double scale = step == 2 ? 0.5 : 1.0;
            optimizer.step(chunks, 0.1, step == 2 ? Tensor::of({scale}, DType::Float64) : Tensor());
            for (const nn::Segment& segment : chunk.segments) {
              for (std::int64_t at = segment.begin; segment.active && at < segment.end; ++at) {
                const auto i = static_cast<std::size_t>(at);
                const double g =
                    chunk.gradients.item(at) * scale + (segment.decay ? weight_decay : 0) * p[i];
                b[i] = momentum * b[i] + g;
                p[i] -= 0.1 * segment.lr_scale * b[i];
              }
            }
            const double tolerance = kDTypeOf<T> == DType::Float64 ? 1e-15 : 4e-7;
            expect_close(chunk.parameters, p, tolerance);
            if (momentum != 0) {
              expect_close(optimizer.states().at(0).values, b, 4 * tolerance);
            }
          }
          CHECK(chunk.segments[0].step == 3);
          CHECK(chunk.segments[1].step == 4);
        });
      }
    }
  }

  TEST_CASE("there is a momentum state only where there is momentum") {
    const std::vector<nn::FlatChunk> chunks{chunk_of(3, DType::Float32, 1),
                                            chunk_of(4, DType::Float32, 1)};
    CHECK(Sgd(chunks, {}).states().empty());
    const Sgd optimizer(chunks, {.momentum = 0.5});
    REQUIRE(optimizer.states().size() == 2);
    CHECK(optimizer.states()[1].name == "momentum");
    CHECK(optimizer.states()[1].chunk == 1);
    CHECK(optimizer.states()[1].values.shape() == chunks[1].parameters.shape());
  }
}

}  // namespace fsdptrain::optim
