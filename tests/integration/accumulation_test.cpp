#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/gpt2_run.h"

using namespace fsdptrain;
using testing::Gpt2Run;
using testing::tiny_gpt2;
using tools::random_batch;

namespace {

constexpr std::int64_t kRows = 11;
constexpr std::int64_t kSeqLen = 20;
constexpr std::uint64_t kFirstSample = 33;

// Rows with 20, 13, 6, ... targets; none of row 5.
data::Batch whole_batch() {
  data::Batch batch = random_batch(kRows, kSeqLen, 101, kFirstSample);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const std::int64_t ignored = row == 5 ? kSeqLen : row * 7 % kSeqLen;
    for (std::int64_t i = 0; i < ignored; ++i) {
      batch.targets[static_cast<std::size_t>(row * kSeqLen + i)] = kIgnoredTarget;
    }
    batch.num_targets -= ignored;
  }
  return batch;
}

data::Batch rows_of(const data::Batch& batch, std::int64_t first, std::int64_t rows) {
  data::Batch part = random_batch(rows, batch.seq_len, 101, 0);
  const auto begin = first * batch.seq_len;
  const auto length = rows * batch.seq_len;
  std::copy_n(batch.tokens.begin() + begin, length, part.tokens.begin());
  std::copy_n(batch.targets.begin() + begin, length, part.targets.begin());
  part.first_sample = batch.first_sample + static_cast<std::uint64_t>(first);
  part.num_targets = length - std::ranges::count(part.targets, kIgnoredTarget);
  return part;
}

// `count` micro-batches of unequal sizes: one row each, and the rest of the rows to every other
// one in turn.
std::vector<data::Batch> in_micro_batches(const data::Batch& batch, std::int64_t count) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count), 1);
  for (std::int64_t left = kRows - count, at = 0; left > 0; --left, at = (at + 2) % count) {
    ++sizes[static_cast<std::size_t>(at)];
  }
  std::vector<data::Batch> parts;
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(rows_of(batch, first, size));
    first += size;
  }
  REQUIRE(first == kRows);
  return parts;
}

struct Gradients {
  double loss;
  double norm;
  // By parameter, in the order of the model.
  std::vector<std::vector<double>> values;
};

Gradients gradients_of(std::span<const data::Batch> micro_batches, double dropout) {
  models::Gpt2Config config = tiny_gpt2();
  config.dropout = dropout;
  Gpt2Run run(config, Device::cpu(), DType::Float64);
  const auto result = run.step.forward_backward(micro_batches, 4);
  Gradients gradients{result.loss.item(), result.grad_norm.item(), {}};
  for (const shard::ParameterPart& part : shard::parts_of(*run.sharded)) {
    const Tensor& all = run.sharded->chunks()[*part.chunk_number].gradients;
    gradients.values.push_back(part.values_in(all).to_vector());
  }
  return gradients;
}

double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum);
}

double norm_of(const std::vector<double>& a) {
  return norm_of_difference(a, std::vector<double>(a.size(), 0.0));
}

}  // namespace

TEST_SUITE("integration/accumulation") {
  TEST_CASE("micro-batches of unequal rows and targets add up to the gradient of one batch") {
    const data::Batch whole = whole_batch();
    // Random numbers are those of the sample, so dropout must not tell the difference either.
    for (const double dropout : {0.0, 0.1}) {
      CAPTURE(dropout);
      const Gradients expected = gradients_of({&whole, 1}, dropout);
      REQUIRE(expected.norm > 0.1);
      for (std::int64_t count = 1; count <= 9; ++count) {
        CAPTURE(count);
        const Gradients actual = gradients_of(in_micro_batches(whole, count), dropout);
        CHECK(std::abs(actual.loss - expected.loss) <= 1e-12 * expected.loss);
        CHECK(std::abs(actual.norm - expected.norm) <= 1e-12 * expected.norm);
        REQUIRE(actual.values.size() == expected.values.size());
        for (std::size_t i = 0; i < expected.values.size(); ++i) {
          CAPTURE(i);
          // The gradient of the keys' biases is zero but for rounding.
          CHECK(norm_of_difference(actual.values[i], expected.values[i]) <=
                1e-12 * norm_of(expected.values[i]) + 1e-15 * expected.norm);
        }
      }
    }
  }
}
