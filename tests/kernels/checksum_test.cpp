#include "kernels/checksum.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>
#include <xxhash.h>

#include <doctest/doctest.h>

#include "runtime/base/random.h"

namespace fsdptrain::kernels {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  std::vector<std::byte> bytes;
  bytes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(philox(i, 0, 1).word[0]));
  }
  return bytes;
}

// Each branch of the algorithm: none, up to 3, 8, 16, 128, 240 bytes, whole stripes, whole blocks
// of 1,024 and what is left behind them.
const std::vector<std::size_t> kSizes = {0,    1,    3,    4,    8,     9,      16,
                                         17,   128,  129,  240,  241,   256,    1023,
                                         1024, 1025, 4096, 4160, 65537, 1 << 20};

}  // namespace

TEST_SUITE("kernels/checksum") {
  TEST_CASE("the checksum of no bytes is the one that the algorithm's authors publish") {
    CHECK(checksum64({}) == 0x2d06800538d394c2u);
  }

  TEST_CASE("every variant has the library's value, at any size and alignment") {
    const std::vector<std::byte> bytes = random_bytes((1 << 20) + 64);
    for (const Isa isa : supported_isas()) {
      for (const std::size_t size : kSizes) {
        for (const std::size_t begin : {0, 1, 31}) {
          CAPTURE(name_of(isa));
          CAPTURE(size);
          CAPTURE(begin);
          const std::span part = std::span(bytes).subspan(begin, size);
          CHECK(checksum64(isa, part) == XXH3_64bits(part.data(), part.size()));
          CHECK(checksum64(part) == XXH3_64bits(part.data(), part.size()));
        }
      }
    }
  }

  TEST_CASE("bytes that come in parts have the checksum of all of them, in every variant") {
    const std::vector<std::byte> bytes = random_bytes(100'000);
    for (const Isa isa : supported_isas()) {
      for (const std::size_t part : {1, 63, 256, 1024, 4097, 100'000}) {
        CAPTURE(name_of(isa));
        CAPTURE(part);
        Checksum64 checksum(isa);
        CHECK(checksum.value() == checksum64({}));
        checksum.append({});
        for (std::size_t begin = 0; begin < bytes.size(); begin += part) {
          checksum.append(std::span(bytes).subspan(begin, std::min(part, bytes.size() - begin)));
        }
        CHECK(checksum.value() == checksum64(bytes));
        checksum.append(std::span(bytes).first(1));
        CHECK(checksum.value() != checksum64(bytes));
      }
    }
  }
}

}  // namespace fsdptrain::kernels
