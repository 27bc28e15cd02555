#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <doctest/doctest.h>

#include "tests/comm/nccl/fake_ranks.h"
#include "tests/support/parity_rows.h"

// Sharded decoders on two GPUs that are none, over all pairs of options: on two ranks of the CPU
// they have the gradients of one rank, and on the GPUs the bits of the CPU.
namespace fsdptrain::testing {
namespace {

constexpr int kNumRanks = 2;
constexpr int kNumSteps = 2;
// All rows where FAKECUDA_ORDERS is set, as for a campaign.
constexpr std::size_t kStride = 6;

// By rank, then step.
using Gradients = std::vector<std::vector<std::vector<std::vector<double>>>>;

Gradients on_cpu(const Row& row) {
  Gradients gradients(kNumRanks);
  comm::run_ranks({.num_ranks = kNumRanks}, [&](comm::World& world) {
    CAPTURE(row.text());
    Part part(row, world);
    Whole whole(row);
    for (int step = 0; step < kNumSteps; ++step) {
      part.step(step);
      part.expect_gradients(whole.gradients_of_step(step), world, whole.num_trained());
      gradients[static_cast<std::size_t>(world.rank())].push_back(part.gradients());
    }
  });
  return gradients;
}

void expect_parity(const Row& row, std::uint64_t seed) {
  const Gradients expected = on_cpu(row);
  FakeRanks ranks(kNumRanks, seed);
  Gradients gradients(kNumRanks);
  ranks.run([&](comm::World& world) {
    Part part(row, world);
    for (int step = 0; step < kNumSteps; ++step) {
      part.step(step);
      gradients[static_cast<std::size_t>(world.rank())].push_back(part.gradients());
    }
  });
  CHECK(gradients == expected);
  ranks.expect_clean();
}

}  // namespace

TEST_SUITE("shard/parity on a device") {
  TEST_CASE("sharded decoders on two GPUs have the bits of the CPU, whatever options are chosen") {
    const CoveringArray pairs = all_pairs(1);
    const bool is_campaign = std::getenv("FAKECUDA_ORDERS") != nullptr;
    for (std::size_t i = 0; i < pairs.rows().size(); i += is_campaign ? 1 : kStride) {
      Row row(pairs.rows()[i]);
      row.num_ranks = kNumRanks;
      CAPTURE(row.text());
      for (std::uint64_t seed = 0; seed < (is_campaign ? num_orders() : 1); ++seed) {
        CAPTURE(seed);
        expect_parity(row, i + 1000 * seed);
      }
    }
  }
}

}  // namespace fsdptrain::testing
