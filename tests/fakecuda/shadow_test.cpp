#include "tests/fakecuda/shadow.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

namespace fsdptrain::fakecuda {
namespace {

using Conflict = std::tuple<std::uint32_t, bool>;

// What is known of one byte, written down in the plainest way.
struct Byte {
  std::uint32_t writer = 0;
  std::set<std::uint32_t> readers;
  bool initialised = false;
};

struct Found {
  std::set<Conflict> conflicts;
  bool uninitialised = false;

  void add(const Found& other) {
    conflicts.insert(other.conflicts.begin(), other.conflicts.end());
    uninitialised = uninitialised || other.uninitialised;
  }
};

// Operation b is ordered after operation a if the stream is the same, or if b comes much later.
bool is_ordered(std::uint32_t a, std::uint32_t b) {
  return a % 3 == b % 3 || a + 12 < b;
}

Found plain_access(std::vector<Byte>& bytes, std::size_t begin, std::size_t nbytes,
                   std::uint32_t op, bool is_write) {
  Found found;
  for (std::size_t i = begin; i < begin + nbytes; ++i) {
    Byte& byte = bytes[i];
    if (byte.writer != 0 && byte.writer != op && !is_ordered(byte.writer, op)) {
      found.conflicts.insert({byte.writer, true});
    }
    if (!is_write) {
      found.uninitialised = found.uninitialised || !byte.initialised;
      byte.readers.insert(op);
      continue;
    }
    for (const std::uint32_t reader : byte.readers) {
      if (reader != op && !is_ordered(reader, op)) {
        found.conflicts.insert({reader, false});
      }
    }
    byte = {.writer = op, .readers = {}, .initialised = true};
  }
  return found;
}

Found access(Shadow& shadow, std::size_t begin, std::size_t nbytes, std::uint32_t op,
             bool is_write) {
  Found found;
  const Shadow::Visitor visitor{
      .is_ordered = [&](std::uint32_t earlier) { return is_ordered(earlier, op); },
      .conflict =
          [&](std::uint32_t earlier, bool wrote, std::size_t) {
            found.conflicts.insert({earlier, wrote});
          },
      .uninitialised = [&](std::size_t) { found.uninitialised = true; }};
  if (is_write) {
    shadow.write(begin, nbytes, op, visitor);
  } else {
    shadow.read(begin, nbytes, op, visitor);
  }
  return found;
}

}  // namespace

TEST_SUITE("fakecuda/shadow") {
  TEST_CASE("intervals find what a record of every byte finds") {
    constexpr std::size_t kNbytes = 40;
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      std::mt19937 random(seed);
      Shadow shadow(kNbytes, false);
      std::vector<Byte> bytes(kNbytes);
      for (std::uint32_t op = 1; op < 60; ++op) {
        CAPTURE(op);
        // An operation may touch memory several times, and hears of a conflict once.
        Found expected;
        Found found;
        for (auto times = 1 + random() % 3; times > 0; --times) {
          const std::size_t begin = random() % kNbytes;
          const std::size_t nbytes = random() % (kNbytes - begin + 1);
          const bool is_write = random() % 2 == 0;
          expected.add(plain_access(bytes, begin, nbytes, op, is_write));
          found.add(access(shadow, begin, nbytes, op, is_write));
        }
        CHECK(found.uninitialised == expected.uninitialised);
        // Of readers that are ordered among themselves, the last one stands for all.
        CHECK(std::ranges::includes(expected.conflicts, found.conflicts));
        CHECK(found.conflicts.empty() == expected.conflicts.empty());
      }
    }
  }

  TEST_CASE("a million elements written one by one are one interval") {
    constexpr std::size_t kNumel = 1'000'000;
    Shadow shadow(kNumel * 4, false);
    for (std::size_t i = 0; i < kNumel; ++i) {
      access(shadow, i * 4, 4, 1, true);
    }
    CHECK(shadow.num_intervals() == 1);
  }
}

}  // namespace fsdptrain::fakecuda
