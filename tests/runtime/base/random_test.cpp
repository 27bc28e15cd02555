#include "runtime/base/random.h"

#include <array>
#include <limits>

#include <doctest/doctest.h>

namespace fsdptrain {
namespace {

constexpr std::uint64_t kOnes = std::numeric_limits<std::uint64_t>::max();

std::array<std::uint32_t, 4> words(std::uint64_t low, std::uint64_t high, std::uint64_t key) {
  const Philox random = philox(low, high, key);
  return {random.word[0], random.word[1], random.word[2], random.word[3]};
}

}  // namespace

TEST_SUITE("runtime/base/random") {
  // The known answers of Random123 1.14, tests/kat_vectors, lines "philox4x32 10".
  TEST_CASE("philox gives the known answers of its authors") {
    using Words = std::array<std::uint32_t, 4>;
    CHECK(words(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(words(kOnes, kOnes, kOnes) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(words(0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  }

  TEST_CASE("the unit interval is open and symmetric") {
    CHECK(to_unit_interval(0) == 0x1p-33);
    CHECK(to_unit_interval(0xffffffff) == 1 - 0x1p-33);
    CHECK(to_unit_interval(0x80000000) == 0.5 + 0x1p-33);
    CHECK(to_unit_interval(12345) == 1 - to_unit_interval(~std::uint32_t{12345}));
  }
}

}  // namespace fsdptrain
