#include "runtime/optim/weight_average.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tests/support/chunks.h"
#include "tests/support/contexts.h"

namespace fsdptrain::optim {
namespace {

using testing::chunk_of;

TEST_SUITE_BEGIN("runtime/optim/weight_average");

// Other parameters, in all segments.
void change(nn::FlatChunk& chunk, std::uint64_t seed) {
  for (const nn::Segment& segment : chunk.segments) {
    const Tensor values = testing::random_tensor({segment.end - segment.begin}, seed++);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      chunk.parameters.set_item(segment.begin + i, values.item(i));
    }
  }
}

// In float32, rounded as the variant's multiply-and-add does: the baseline has no fused one.
float naive_lerp(float average, float value, float weight) {
  const float step = value - average;
  return current_context().isa() == Isa::Baseline ? average + weight * step
                                                  : std::fma(step, weight, average);
}

TEST_CASE("the average is that of a loop over the elements, bit for bit") {
  testing::for_each_isa([] {
    for (const double decay : {0.0, 0.5, 0.999}) {
      std::vector<nn::FlatChunk> chunks{chunk_of(37, DType::Float32, 1),
                                        chunk_of(0, DType::Float32, 2)};
      WeightAverage average(chunks, decay);
      const auto weight = static_cast<float>(1 - decay);
      std::vector<double> naive = chunks[0].parameters.to_vector();
      for (std::uint64_t step = 0; step < 5; ++step) {
        change(chunks[0], 10 * step);
        average.update(chunks);
        for (std::size_t i = 0; i < naive.size(); ++i) {
          const auto before = static_cast<float>(naive[i]);
          const auto now =
              static_cast<float>(chunks[0].parameters.item(static_cast<std::int64_t>(i)));
          naive[i] = naive_lerp(before, now, weight);
        }
      }
      CHECK(average.values(0).to_vector() == naive);
      CHECK(average.values(1).numel() == chunks[1].parameters.numel());
    }
  });
}

TEST_CASE("it begins as the parameters are, and counts as memory of the optimizer") {
  RankContext context;
  const ContextGuard guard(context);
  std::vector<nn::FlatChunk> chunks{chunk_of(7, DType::Float32, 1)};
  const auto optimizer_bytes = [&] {
    return context.allocator(Device::cpu()).counters().live_of(MemoryCategory::Optimizer);
  };
  const std::int64_t before = optimizer_bytes();
  const WeightAverage average(chunks, 0.9);
  const auto nbytes = static_cast<std::size_t>(chunks[0].parameters.numel()) * sizeof(float);
  CHECK(optimizer_bytes() - before == static_cast<std::int64_t>(size_class(nbytes)));
  CHECK(average.values(0).to_vector() == chunks[0].parameters.to_vector());
}

TEST_CASE("what does not fit is refused") {
  RankContext context;
  const ContextGuard guard(context);
  std::vector<nn::FlatChunk> chunks{chunk_of(7, DType::Float32, 1)};
  CHECK_THROWS_WITH_AS(WeightAverage(chunks, 1.0), doctest::Contains("decay must be in [0, 1)"),
                       ConfigError);
  CHECK_THROWS_AS(WeightAverage(chunks, -0.1), ConfigError);
  WeightAverage average(chunks, 0.5);
  CHECK_THROWS_AS(average.update({}), ShapeError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::optim
