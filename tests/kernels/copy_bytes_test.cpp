#include "kernels/copy_bytes.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::kernels {
namespace {

constexpr Caching kCachings[] = {Caching::Normal, Caching::Stream};

std::vector<std::byte> random_bytes(std::size_t count) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(philox(i, 0, 1).word[0]));
  }
  return bytes;
}

// Copies `nbytes` between places `to` and `from` bytes into aligned memory; true if they arrive
// and nothing around them changes.
bool arrives(RankContext& context, Caching caching, const std::vector<std::byte>& source,
             std::size_t to, std::size_t from, std::size_t nbytes) {
  constexpr std::size_t kMargin = 64;
  Allocation memory = context.allocator(Device::cpu())
                          .allocate(to + nbytes + 2 * kMargin, MemoryCategory::Communication);
  std::byte* const begin = memory.data();
  std::byte* const place = begin + kMargin + to;
  std::byte* const end = place + nbytes + kMargin;
  std::fill(begin, end, std::byte{0x5a});
  copy_bytes(context.launch(Device::cpu()), place, source.data() + from,
             static_cast<std::int64_t>(nbytes), caching);
  const auto untouched = [](std::byte byte) { return byte == std::byte{0x5a}; };
  return std::equal(place, place + nbytes, source.data() + from) &&
         std::all_of(begin, place, untouched) && std::all_of(place + nbytes, end, untouched);
}

void wait_for(const std::atomic<int>& flag, int value) {
  for (int spin = 0; flag.load(std::memory_order_acquire) != value; ++spin) {
    if (spin > 1000) {
      std::this_thread::yield();
    }
  }
}

// Streams whole lines to another thread, a release store right behind each copy; how often it saw
// old bytes. The last line is the one to be late.
int stale_reads(Isa isa) {
  constexpr std::size_t kBytes = 4096;
  constexpr int kRounds = 100000;
  RankContext context({.threads = 1, .isa = isa, .log_prefix = {}});
  const Launch launch = context.launch(Device::cpu());
  const Allocation memory =
      context.allocator(Device::cpu()).allocate(kBytes, MemoryCategory::Communication);
  std::vector<std::byte> from(kBytes);
  // Apart, so that the store that announces a copy is quick.
  alignas(64) std::atomic<int> written{0};
  alignas(64) std::atomic<int> read{0};
  alignas(64) std::atomic<int> rounds{kRounds};
  alignas(64) int stale = 0;
  std::thread reader([&] {
    for (int round = 1; round <= rounds.load(); ++round) {
      wait_for(written, round);
      stale += memory.data()[kBytes - 1] == static_cast<std::byte>(round) ? 0 : 1;
      read.store(round, std::memory_order_release);
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  for (int round = 1; round <= rounds.load(); ++round) {
    if (std::chrono::steady_clock::now() > end) {
      rounds.store(round);
    }
    std::ranges::fill(from, static_cast<std::byte>(round));
    copy_bytes(launch, memory.data(), from.data(), kBytes, Caching::Stream);
    written.store(round, std::memory_order_release);
    wait_for(read, round);
  }
  reader.join();
  return stale;
}

}  // namespace

TEST_SUITE("kernels/copy_bytes") {
  TEST_CASE("a release store behind a streamed copy hands its bytes to another thread") {
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      CHECK(stale_reads(isa) == 0);
    }
  }

  TEST_CASE("bytes of every alignment and number arrive, and no others are written") {
    const std::vector<std::byte> source = random_bytes(1000);
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      RankContext context({.threads = 1, .isa = isa, .log_prefix = {}});
      for (const Caching caching : kCachings) {
        std::size_t lost = 0;
        for (std::size_t to = 0; to < 65; ++to) {
          for (const std::size_t from : {0, 1, 8, 31, 63}) {
            for (std::size_t nbytes = 0; nbytes < 200; nbytes += nbytes < 70 ? 1 : 13) {
              lost += arrives(context, caching, source, to, from, nbytes) ? 0 : 1;
            }
          }
        }
        CAPTURE(static_cast<int>(caching));
        CHECK(lost == 0);
      }
    }
  }

  TEST_CASE("several blocks arrive for any number of threads") {
    constexpr std::size_t kBlock = std::size_t{1} << 18;
    const std::vector<std::byte> source = random_bytes(5 * kBlock + 200);
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      for (const int threads : {1, 2, 3}) {
        CAPTURE(threads);
        RankContext context({.threads = threads, .isa = isa, .log_prefix = {}});
        for (const Caching caching : kCachings) {
          CAPTURE(static_cast<int>(caching));
          for (const std::size_t nbytes : {kBlock - 1, kBlock, kBlock + 1, 5 * kBlock + 77}) {
            CAPTURE(nbytes);
            CHECK(arrives(context, caching, source, 0, 0, nbytes));
            CHECK(arrives(context, caching, source, 5, 0, nbytes));
            CHECK(arrives(context, caching, source, 63, 19, nbytes));
          }
        }
      }
    }
  }

  TEST_CASE("meta copies nothing and CUDA says that it cannot") {
    RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
    copy_bytes(context.launch(Device::meta()), nullptr, nullptr, 1000, Caching::Stream);
    Launch cuda = context.launch(Device::cpu());
    cuda.device = Device::cuda(0);
    CHECK_THROWS_WITH_AS(
        copy_bytes(cuda, nullptr, nullptr, 1000),
        doctest::Contains("copy_bytes: it works on memory of the host, got a launch on cuda:0"),
        DeviceError);
  }

  TEST_CASE("copy_bytes refuses what it cannot do") {
    RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
    const Launch launch = context.launch(Device::cpu());
    std::vector<std::byte> memory(100);
    std::byte* const begin = memory.data();
    CHECK_THROWS_WITH_AS(
        copy_bytes(launch, begin, begin + 50, -1),
        doctest::Contains("copy_bytes: the number of bytes must be at least 0, got -1"),
        ShapeError);
    CHECK_THROWS_WITH_AS(
        copy_bytes(launch, nullptr, begin, 3),
        doctest::Contains("copy_bytes: 3 bytes need two addresses, got null for the destination"),
        StorageError);
    CHECK_THROWS_WITH_AS(copy_bytes(launch, begin, nullptr, 3, Caching::Stream),
                         doctest::Contains("got null for the source"), StorageError);
    CHECK_THROWS_WITH_AS(copy_bytes(launch, begin + 9, begin, 10),
                         doctest::Contains("copy_bytes: the ranges must not overlap, got 10 bytes "
                                           "to 9 behind their source"),
                         Error);
    CHECK_THROWS_WITH_AS(copy_bytes(launch, begin, begin + 9, 10),
                         doctest::Contains("got 10 bytes to -9 behind their source"), Error);
    CHECK_THROWS_WITH_AS(copy_bytes(launch, begin, begin, 10), doctest::Contains("to 0 behind"),
                         Error);
    copy_bytes(launch, begin + 10, begin, 10);
    copy_bytes(launch, begin, begin + 10, 10);
    copy_bytes(launch, nullptr, nullptr, 0);
    copy_bytes(launch, begin, begin, 0);
  }
}

}  // namespace fsdptrain::kernels
