#include <bit>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "comm/world.h"
#include "kernels/functors/binary_counter.h"
#include "tests/support/rank_backends.h"

namespace fsdptrain::comm {
namespace {

constexpr int kNumVectors = 8;
constexpr std::int64_t kNumel = 1000;

// Of very different sizes, so that every order of summation has its own bits.
Tensor vector(int index) {
  const Tensor tensor = Tensor::empty({kNumel}, DType::Float32);
  std::uint32_t state = 12345u + static_cast<std::uint32_t>(index) * 977u;
  for (float& value : tensor.mutable_values<float>()) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<std::int32_t>(state)) /
            static_cast<float>(1u << (state >> 27));
  }
  return tensor;
}

std::vector<std::uint32_t> bits_of(const Tensor& tensor) {
  std::vector<std::uint32_t> bits;
  for (const float value : tensor.values<float>()) {
    bits.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return bits;
}

Tensor add(const Tensor& left, const Tensor& right) {
  const Tensor sum = Tensor::empty({kNumel}, DType::Float32);
  for (std::size_t i = 0; i < kNumel; ++i) {
    sum.mutable_values<float>()[i] = left.values<float>()[i] + right.values<float>()[i];
  }
  return sum;
}

// Vector g is on rank g mod W; what the ranks have is summed as it comes, and the sums are added.
std::vector<std::uint32_t> sum_on(testing::Backend backend, int num_ranks) {
  std::vector<std::uint32_t> bits;
  run_ranks(testing::thread_ranks(backend, num_ranks), [&](World& world) {
    kernels::BinaryCounter<Tensor, 4> counter;
    for (int first = 0; first < kNumVectors; first += num_ranks) {
      const Tensor sum = vector(first + world.rank());
      world.group().issue(all_reduce(sum)).wait();
      counter.push(sum, add);
    }
    const Tensor total = counter.finish(add);
    if (world.rank() == num_ranks - 1) {
      bits = bits_of(total);
    }
  });
  return bits;
}

}  // namespace

TEST_SUITE("comm/reduction_order") {
  TEST_CASE("eight vectors have one sum on 1, 2, 4 and 8 ranks, bit for bit") {
    const std::vector<std::uint32_t> one = sum_on(testing::Backend::Threads, 1);
    // Another order of the same vectors is another sum.
    Tensor in_sequence = vector(0);
    for (int g = 1; g < kNumVectors; ++g) {
      in_sequence = add(in_sequence, vector(g));
    }
    REQUIRE(bits_of(in_sequence) != one);
    for (const testing::Backend backend : testing::all_backends()) {
      CAPTURE(testing::name_of(backend));
      for (const int num_ranks : {2, 4, 8}) {
        CAPTURE(num_ranks);
        CHECK(sum_on(backend, num_ranks) == one);
      }
    }
  }
}

}  // namespace fsdptrain::comm
