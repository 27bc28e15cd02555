#include <doctest/doctest.h>

#include "tests/support/parity_rows.h"

// Sharded decoders against the same on one rank, over all pairs of options.
namespace fsdptrain::testing {
namespace {

void expect_parity(const Row& row) {
  comm::run_ranks({.num_ranks = row.num_ranks}, [&](comm::World& world) {
    CAPTURE(row.text());
    Part part(row, world);
    Whole whole(row);
    for (int step = 0; step < 3; ++step) {
      CAPTURE(step);
      part.step(step);
      part.expect_gradients(whole.gradients_of_step(step), world, whole.num_trained());
      CHECK(part.pool().idle());
    }
    // A second backward of a graph gathers what a step of one kept from its forward.
    CHECK((part.pool().num_unplanned() == 0 || row.passes == Passes::Retained));
  });
}

}  // namespace

TEST_SUITE("shard/parity") {
  TEST_CASE("every two options are together in one of at most 40 rows") {
    const CoveringArray pairs = all_pairs(4);
    const auto& rows = pairs.rows();
    CHECK(rows.size() <= 40);
    CHECK(rows.size() >= 20);
  }

  TEST_CASE("sharded decoders have the gradients of one rank, whatever two options are chosen") {
    const CoveringArray pairs = all_pairs(4);
    for (const CoveringArray::Row& levels : pairs.rows()) {
      const Row row(levels);
      CAPTURE(row.text());
      expect_parity(row);
    }
  }
}

}  // namespace fsdptrain::testing
