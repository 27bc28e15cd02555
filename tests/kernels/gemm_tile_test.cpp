#include "kernels/cpu/gemm_tile.h"

#include <vector>

#include <doctest/doctest.h>

namespace fsdptrain::kernels::cpu {
namespace {

constexpr Isa kIsas[] = {Isa::Baseline, Isa::Avx2, Isa::Avx512};

std::int64_t parts(std::int64_t size, std::int64_t tile) {
  return (size + tile - 1) / tile;
}

std::int64_t tasks(std::int64_t m, std::int64_t n, bool transposed, Isa isa) {
  const GemmTile tile = gemm_tile(m, n, transposed, isa);
  return parts(m, tile.rows) * parts(n, tile.columns);
}

}  // namespace

TEST_SUITE("kernels/gemm_tile") {
  TEST_CASE("tiles are whole vectors or the whole output, and not too large for a thread") {
    const std::vector<std::int64_t> sizes{1,    2,    15,   16,   17,   63,   64,   65,   100,
                                          255,  256,  257,  511,  512,  513,  767,  768,  769,
                                          1000, 1024, 1535, 1536, 2304, 3071, 3072, 50257};
    for (const Isa isa : kIsas) {
      for (const bool transposed : {false, true}) {
        for (const std::int64_t m : sizes) {
          for (const std::int64_t n : sizes) {
            CAPTURE(name_of(isa));
            CAPTURE(transposed);
            CAPTURE(m);
            CAPTURE(n);
            const GemmTile tile = gemm_tile(m, n, transposed, isa);
            REQUIRE(tile.rows > 0);
            REQUIRE(tile.columns > 0);
            CHECK((tile.rows % 16 == 0 || tile.rows == m));
            CHECK((tile.columns % 16 == 0 || tile.columns == n));
            // Large transposed products have fewer tiles, each at most twice as large a way.
            const std::int64_t times = transposed ? 2 : 1;
            CHECK(tile.rows <= times * (isa == Isa::Avx512 ? 256 : 512));
            CHECK(tile.columns <= times * 768);
          }
        }
      }
    }
  }

  TEST_CASE(
      "large products have tiles for four threads, those with a transposed left one for two") {
    for (const Isa isa : kIsas) {
      CAPTURE(name_of(isa));
      for (const std::int64_t m : {512, 777, 1024, 3072}) {
        for (const std::int64_t n : {768, 1001, 2304, 50257}) {
          CAPTURE(m);
          CAPTURE(n);
          CHECK(tasks(m, n, false, isa) >= 4);
          CHECK(tasks(m, n, true, isa) >= 2);
        }
      }
    }
  }

  TEST_CASE("the gradient of a square weight of GPT-2 is cut into few large tiles") {
    CHECK(tasks(768, 768, true, Isa::Baseline) == 2);
    CHECK(tasks(768, 768, true, Isa::Avx2) == 2);
    CHECK(tasks(768, 768, true, Isa::Avx512) == 3);
    CHECK(tasks(768, 768, false, Isa::Avx2) == 4);
    // A small one is cut as if it were not transposed.
    CHECK(tasks(256, 256, true, Isa::Avx2) == tasks(256, 256, false, Isa::Avx2));
  }

  TEST_CASE("scratch holds a tile and a panel of each operand") {
    CHECK(matmul_scratch_floats({.rows = 3, .columns = 5}) ==
          15 + 3 * kPanelDepth + 5 * kPanelDepth);
  }
}

}  // namespace fsdptrain::kernels::cpu
