#include "comm/shm/arena.h"

#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm {

TEST_SUITE("comm/shm/arena") {
  TEST_CASE("pieces lie apart, are aligned, and come back") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    std::vector<std::byte> memory(1024 + 64);
    const auto misaligned = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
    const std::span<std::byte> range(memory.data() + (64 - misaligned), 1024);
    const auto arena = std::make_shared<Arena>(range, nullptr, "the arena");
    std::vector<std::shared_ptr<Storage>> pieces;
    for (int i = 0; i < 8; ++i) {
      pieces.push_back(arena->allocate_storage(100));
      CHECK(pieces.back()->data() == range.data() + i * 128);
      CHECK(pieces.back()->nbytes() == 100);
    }
    CHECK_THROWS_WITH_AS(arena->allocate_storage(1),
                         doctest::Contains("the arena: 64 bytes do not fit: 0 of 1024 are free"),
                         OutOfMemoryError);
    // Two that touch become one, in either order of their return; two apart do not.
    pieces[2].reset();
    pieces[4].reset();
    CHECK_THROWS_WITH_AS(arena->allocate_storage(200),
                         doctest::Contains("256 of 1024 are free, 128 of them in one piece"),
                         OutOfMemoryError);
    pieces[3].reset();
    const auto joined = arena->allocate_storage(384);
    CHECK(joined->data() == range.data() + 256);
    pieces.clear();
    CHECK(arena->allocate_storage(256)->data() == range.data());
    CHECK_THROWS_AS(arena->allocate_storage(1024), OutOfMemoryError);
  }

  TEST_CASE("a piece keeps its arena and the memory alive") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    auto memory = std::make_shared<std::vector<std::byte>>(64);
    const std::weak_ptr<std::vector<std::byte>> watched = memory;
    const std::span<std::byte> range(*memory);
    auto arena = std::make_shared<Arena>(range, std::move(memory), "the arena");
    auto piece = arena->allocate_storage(10);
    arena.reset();
    CHECK_FALSE(watched.expired());
    piece.reset();
    CHECK(watched.expired());
  }

  TEST_CASE("pieces are counted as memory of communication, in whole size classes") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    std::vector<std::byte> memory(8192);
    const auto arena = std::make_shared<Arena>(std::span(memory), nullptr, "the arena");
    const MemoryCounters& counters = context.allocator(Device::cpu()).counters();
    auto piece = arena->allocate_storage(1000);
    CHECK(counters.live_of(MemoryCategory::Communication) == 1024);
    CHECK(counters.raw_bytes == 1024);
    CHECK_THROWS_AS(arena->allocate_storage(8000), OutOfMemoryError);
    CHECK(counters.live_total == 1024);
    piece.reset();
    CHECK(counters.live_total == 0);
    CHECK(counters.raw_bytes == 0);
    CHECK(counters.peak_of(MemoryCategory::Communication) == 1024);
  }

  TEST_CASE("no memory is an arena without pieces") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    const auto arena = std::make_shared<Arena>(std::span<std::byte>{}, nullptr, "none");
    CHECK_THROWS_WITH_AS(arena->allocate_storage(1), doctest::Contains("0 of 0 are free"),
                         OutOfMemoryError);
  }
}

}  // namespace fsdptrain::comm
