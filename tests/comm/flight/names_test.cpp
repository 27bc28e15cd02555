#include <array>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "comm/flight/reader.h"
#include "comm/flight/ring.h"
#include "comm/flight/table.h"
#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

using doctest::Contains;

constexpr off_t kHeaderBytes = 256;
constexpr off_t kRecordBytes = 128;

FlightSnapshot read(const FlightRing& ring) {
  return read_flight_ring(ring.memory().descriptor(), "ring");
}

template <class T>
void overwrite(int descriptor, off_t offset, T value) {
  REQUIRE(::pwrite(descriptor, &value, sizeof(value), offset) == sizeof(value));
}

}  // namespace

TEST_SUITE("comm/flight_names") {
  TEST_CASE("groups of parameters have the names that were given last, as far as there is room") {
    const FlightIdentity identity{.rank = 0, .world_size = 1, .host = "node1"};
    FlightRing ring(FlightMemory::create(identity, {.capacity = 2, .names_capacity = 64}));
    CHECK(read(ring).names.empty());
    ring.name_group(0, 3, "h.0.mlp");
    ring.name_group(1, 3, "a\nb");
    ring.name_group(0, 3, "h.1.mlp");
    // 48 of 64 bytes are used: one more than the rest, then the rest.
    ring.name_group(0, 4, "h.2.mlp");
    ring.name_group(0, 5, "abcdef");
    ring.name_group(0, 6, "");
    const TagNames names = read(ring).names;
    CHECK(names.find(FlightTag{.root = 0, .group = 3}) == "h.1.mlp");
    CHECK(names.find(FlightTag{.root = 1, .group = 3}) == "a\\nb");
    CHECK(names.find(FlightTag{.root = 0, .group = 4}).empty());
    CHECK(names.find(FlightTag{.root = 0, .group = 5}) == "abcdef");
    CHECK(names.find(FlightTag{.root = 2, .group = 3}).empty());
    // docs/comm.md: behind the records, root and group first.
    std::array<char, 17> bytes{};
    REQUIRE(::pread(ring.memory().descriptor(), bytes.data(), bytes.size(), 512) == 17);
    CHECK(std::string(bytes.data(), 17) == std::string("\0\0\0\0\3\0\0\0\7\0h.0.mlp", 17));

    // Who adopts the memory goes on behind what is there.
    FlightRing second(FlightMemory::adopt(::dup(ring.memory().descriptor()), identity));
    second.name_group(0, 3, std::string(300, 'x'));
    CHECK(read(second).names.find(FlightTag{.root = 0, .group = 3}) == "h.1.mlp");
  }

  TEST_CASE("names are cut") {
    FlightRing ring(FlightMemory::create({.rank = 0, .world_size = 1}, {.capacity = 1}));
    ring.name_group(0, 1, std::string(300, 'x'));
    CHECK(read(ring).names.find(FlightTag{.group = 1}) == std::string(255, 'x'));
  }

  TEST_CASE("damaged names cost no record: the ring is read without them, and says so") {
    FlightRing ring(FlightMemory::create({.rank = 0, .world_size = 1}, {.capacity = 1}));
    FlightRecord record;
    record.sequence = 41;
    ring.begin(record);
    ring.name_group(0, 1, std::string(300, 'x'));
    const int descriptor = ring.memory().descriptor();
    constexpr off_t kNames = kHeaderBytes + kRecordBytes;
    const auto expect_damaged = [&] {
      const FlightSnapshot damaged = read(ring);
      CHECK(damaged.has_damaged_names);
      CHECK(damaged.names.empty());
      REQUIRE(damaged.records.size() == 1);
      CHECK(damaged.records[0].sequence == 41);
      CHECK(rank_line(damaged, {}).find("; its names are damaged)") != std::string::npos);
    };
    CHECK_FALSE(read(ring).has_damaged_names);
    overwrite(descriptor, kNames + 20, '\x1b');
    expect_damaged();
    overwrite(descriptor, kNames + 8, std::uint16_t{0});
    expect_damaged();
    overwrite(descriptor, kNames + 8, std::uint16_t{256});
    expect_damaged();
    overwrite(descriptor, 136, std::uint64_t{9});
    expect_damaged();
    // Who does not ask for names does not look at them.
    CHECK_FALSE(read_newest_records(descriptor, "ring", 1).has_damaged_names);
    // How many there are is of the header, which must be whole.
    overwrite(descriptor, 136, std::uint64_t{kDefaultFlightNames + 1});
    CHECK_THROWS_WITH_AS(read(ring), Contains("ring: the names must have at most 65536 bytes, got"),
                         DataError);
  }

  TEST_CASE("names are read where they are asked for, and have no room without end") {
    FlightRing ring(FlightMemory::create({.rank = 0, .world_size = 1}, {.capacity = 1}));
    ring.name_group(0, 1, "h.0");
    const int descriptor = ring.memory().descriptor();
    CHECK(read_newest_records(descriptor, "ring", 1).names.empty());
    CHECK_FALSE(read_newest_records(descriptor, "ring", 1, FlightNames::Read).names.empty());
    CHECK_THROWS_WITH_AS(
        FlightMemory::create({.rank = 0, .world_size = 1}, {.names_capacity = kMaxFlightNames + 1}),
        Contains("names have room for at most 16777216 bytes"), ConfigError);
  }
}

}  // namespace fsdptrain::comm
