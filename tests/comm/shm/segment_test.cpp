#include "comm/shm/segment.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/shm/connect.h"
#include "comm/shm/host_memory.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm {

TEST_SUITE("comm/shm/segment") {
  TEST_CASE("whoever maps it sees the same bytes, each rank in an arena of its own") {
    const int descriptor = Segment::create({.num_ranks = 2, .arena_bytes = 5000});
    const Segment one(descriptor);
    const Segment other(descriptor);
    ::close(descriptor);
    CHECK(one.shape().num_ranks == 2);
    REQUIRE(one.arena(1).size() == 5000);
    one.arena(1)[4999] = std::byte{7};
    CHECK(other.arena(1)[4999] == std::byte{7});
    CHECK(other.arena(0)[4999] == std::byte{0});
    CHECK(one.arena(0).data() + 5000 <= one.arena(1).data());
  }

  TEST_CASE("sizes that cannot be, and what is no segment, are refused") {
    for (const Segment::Shape shape :
         {Segment::Shape{0, 1}, {257, 1}, {-1, 1}, {1, std::uint64_t{1} << 43}}) {
      CHECK_THROWS_AS(Segment::create(shape), ConfigError);
    }
    CHECK_THROWS_AS(Segment(-1), DataError);
    const int empty = ::memfd_create("empty", 0);
    CHECK_THROWS_AS(Segment{empty}, DataError);
    ::close(empty);
    const int sealed = Segment::create({.num_ranks = 1, .arena_bytes = 4096});
    CHECK(::ftruncate(sealed, 4096) != 0);
    ::close(sealed);
    // With another number of ranks than it has room for.
    const int other = Segment::create({.num_ranks = 1, .arena_bytes = 4096});
    const std::int32_t ranks = 1 << 30;
    REQUIRE(::pwrite(other, &ranks, sizeof(ranks), 16) == ssize_t{sizeof(ranks)});
    CHECK_THROWS_AS(Segment{other}, DataError);
    const std::int32_t two = 2;
    REQUIRE(::pwrite(other, &two, sizeof(two), 16) == ssize_t{sizeof(two)});
    CHECK_THROWS_WITH_AS(Segment{other}, doctest::Contains("do not fit 2 ranks"), DataError);
    ::close(other);
  }

  TEST_CASE("arenas are as large as the machine, but all together can be mapped and made") {
    constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
    CHECK(arena_bytes(4, 64 * kGiB) == 64 * kGiB);
    CHECK(arena_bytes(kMaxRanksPerHost, 4096 * kGiB) * kMaxRanksPerHost == 32768 * kGiB);
#ifndef __SANITIZE_THREAD__  // Its processes have less room.
    for (const int num_ranks : {1, kMaxRanksPerHost}) {
      const int descriptor = Segment::create({num_ranks, arena_bytes(num_ranks, (1 << 20) * kGiB)});
      CHECK(Segment(descriptor).shape().num_ranks == num_ranks);
      ::close(descriptor);
    }
#endif
    CHECK(arena_bytes(1) > 0);
  }

  TEST_CASE("a rank outside of the host is refused") {
    const int descriptor = Segment::create({.num_ranks = 2});
    const auto segment = std::make_shared<const Segment>(descriptor);
    ::close(descriptor);
    CHECK_THROWS_WITH_AS(connect_shm(segment, 2, false),
                         doctest::Contains("rank 2 is none of the 2 ranks"), ConfigError);
    const Links links = connect_shm(segment, 0, false);
    CHECK_THROWS_WITH_AS(connect_shm(segment, 0, false),
                         doctest::Contains("rank 0 has joined before"), MisuseError);
  }

  TEST_CASE("what a peer offers must lie in its arena") {
    const int descriptor = Segment::create({.num_ranks = 2, .arena_bytes = 1 << 20});
    const auto segment = std::make_shared<const Segment>(descriptor);
    ::close(descriptor);
    HostMemory memory(segment, segment->training(), 0);
    const auto storage = memory.allocate(1000);
    const std::span<const std::byte> bytes(storage->data(), 1000);
    const auto address = memory.export_address(bytes);
    REQUIRE(address);
    CHECK(memory.import_bytes(0, *address, 1000).data() == bytes.data());
    const std::array<std::byte, 8> elsewhere{};
    CHECK_FALSE(memory.export_address(elsewhere));
    for (const auto& [offset, nbytes] : {std::pair<std::uint64_t, std::uint64_t>{1 << 20, 1},
                                         {0, (1 << 20) + 1},
                                         {~std::uint64_t{0}, 2},
                                         {8, ~std::uint64_t{0} - 4}}) {
      CHECK_THROWS_WITH_AS(memory.import_bytes(1, offset, nbytes),
                           doctest::Contains("is not in its shared memory"), PeerError);
    }
  }
}

}  // namespace fsdptrain::comm
