#include "shard/chunk_gradients.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/copy.h"
#include "runtime/base/memory_counters.h"
#include "runtime/base/rank_context.h"
#include "tests/support/random_tensor.h"

namespace fsdptrain::shard {
namespace {

constexpr std::int64_t kNumel = 40;

std::vector<float> values_of(const Tensor& tensor) {
  const std::span<const float> values = tensor.values<float>();
  return {values.begin(), values.end()};
}

// Element by element, over the tree that splits at the largest power of two below the number.
std::vector<float> tree_sum(std::span<const Tensor> parts) {
  if (parts.size() == 1) {
    return values_of(parts[0]);
  }
  std::size_t half = 1;
  while (2 * half < parts.size()) {
    half *= 2;
  }
  std::vector<float> sum = tree_sum(parts.first(half));
  const std::vector<float> right = tree_sum(parts.subspan(half));
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += right[i];
  }
  return sum;
}

std::vector<Tensor> parts_of(int num, std::uint64_t seed) {
  std::vector<Tensor> parts;
  for (int i = 0; i < num; ++i) {
    parts.push_back(testing::random_tensor({kNumel}, seed + static_cast<std::uint64_t>(i), 1.0,
                                           DType::Float32));
  }
  return parts;
}

Tensor no_values() {
  return Tensor::full({kNumel}, 7, DType::Float32, Device::cpu(), MemoryCategory::Gradient);
}

std::int64_t live_chunks() {
  const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
  return counters.live_of(MemoryCategory::Gradient) /
         static_cast<std::int64_t>(size_class(kNumel * sizeof(float)));
}

}  // namespace

TEST_SUITE("shard/chunk_gradients") {
  TEST_CASE("exact sums are those of the tree over backwards, for every number of these") {
    ChunkGradients gradients(no_values(), Accumulation::Exact);
    for (int num = 1; num <= 33; ++num) {
      CAPTURE(num);
      const std::vector<Tensor> parts = parts_of(num, static_cast<std::uint64_t>(100 * num));
      gradients.forget();
      CHECK(gradients.is_final());
      for (const Tensor& part : parts) {
        gradients.add(part, 0);
        CHECK_FALSE(gradients.is_final());
      }
      gradients.finish();
      CHECK(gradients.is_final());
      CHECK(values_of(gradients.values()) == tree_sum(parts));
    }
  }

  TEST_CASE("levels take at most log2 of the backwards chunks, until the last one") {
    for (int num = 1; num <= 16; ++num) {
      CAPTURE(num);
      ChunkGradients gradients(no_values(), Accumulation::Exact);
      const std::vector<Tensor> parts = parts_of(num, 1);
      const std::int64_t before = live_chunks();
      for (const Tensor& part : parts) {
        gradients.add(part, 0);
        CHECK(static_cast<double>(live_chunks() - before) <= std::ceil(std::log2(num)));
      }
      gradients.finish();
      CHECK(live_chunks() == before);
    }
    ChunkGradients gradients(no_values(), Accumulation::Exact);
    const std::int64_t before = live_chunks();
    for (const Tensor& part : parts_of(7, 1)) {
      gradients.add(part, 0);
    }
    CHECK(live_chunks() == before + 2);
    gradients.forget();
    CHECK(live_chunks() == before);
  }

  TEST_CASE("second reductions of backwards are added behind all first ones") {
    ChunkGradients gradients(no_values(), Accumulation::Exact);
    const std::vector<Tensor> first = parts_of(3, 1);
    const std::vector<Tensor> second = parts_of(3, 50);
    for (std::size_t i = 0; i < first.size(); ++i) {
      gradients.add(first[i], 0);
      gradients.add(second[i], 1);
    }
    gradients.finish();
    std::vector<float> expected = tree_sum(first);
    const std::vector<float> more = tree_sum(second);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += more[i];
    }
    CHECK(values_of(gradients.values()) == expected);
  }

  TEST_CASE("what comes after the last backward is added to what there is") {
    ChunkGradients gradients(no_values(), Accumulation::Exact);
    const std::vector<Tensor> before = parts_of(3, 1);
    const std::vector<Tensor> after = parts_of(3, 50);
    for (const auto& parts : {before, after}) {
      for (const Tensor& part : parts) {
        gradients.add(part, 0);
      }
      gradients.finish();
    }
    std::vector<float> expected = tree_sum(before);
    const std::vector<float> more = tree_sum(after);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += more[i];
    }
    CHECK(values_of(gradients.values()) == expected);
  }

  TEST_CASE("no exact sum is -0, whatever is added") {
    const Tensor minus_zero = Tensor::full({kNumel}, -0.0);
    for (const int num : {1, 2, 3, 6}) {
      ChunkGradients gradients(no_values(), Accumulation::Exact);
      for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < num; ++i) {
          gradients.add(minus_zero, 0);
        }
        gradients.finish();
        CHECK(gradients.values().item(0) == 0);
        CHECK_FALSE(std::signbit(gradients.values().item(0)));
      }
    }
  }

  TEST_CASE("what is opened are the gradients, and once closed memory beside them") {
    ChunkGradients gradients(no_values(), Accumulation::Sharded);
    const std::int64_t before = live_chunks();
    for (int round = 0; round < 2; ++round) {
      CHECK(gradients.open().storage() == gradients.values().storage());
      kernels::fill(gradients.open().launch(), gradients.open().view(), 3);
      gradients.close();
      CHECK(gradients.has_sum());
      for (const double more : {10, 20}) {
        CHECK(gradients.open().storage() != gradients.values().storage());
        CHECK(gradients.open().storage() == gradients.open().storage());
        CHECK(live_chunks() == before + 1);
        kernels::fill(gradients.open().launch(), gradients.open().view(), more);
        gradients.close();
        CHECK(live_chunks() == before);
      }
      CHECK(gradients.values().item(kNumel - 1) == 33);
      gradients.open();
      gradients.forget();
      CHECK(live_chunks() == before);
      CHECK_FALSE(gradients.has_sum());
    }
  }

  TEST_CASE("other sums are added as they come, from the first on that came") {
    ChunkGradients gradients(no_values(), Accumulation::Sharded);
    const std::vector<Tensor> parts = parts_of(3, 1);
    for (int round = 0; round < 2; ++round) {
      CHECK_FALSE(gradients.has_sum());
      for (const Tensor& part : parts) {
        gradients.add(part, 0);
        CHECK(gradients.is_final());
      }
      const float expected =
          (parts[0].values<float>()[5] + parts[1].values<float>()[5]) + parts[2].values<float>()[5];
      CHECK(gradients.values().values<float>()[5] == expected);
      gradients.forget();
    }
  }
}

}  // namespace fsdptrain::shard
