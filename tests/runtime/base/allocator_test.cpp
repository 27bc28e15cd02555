#include "runtime/base/allocator.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace fsdptrain {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizers end the program at a request this large instead of refusing it.
constexpr bool kRefusesLargeRequests = false;
#else
constexpr bool kRefusesLargeRequests = true;
#endif

// Live and peak figures after a fixed sequence of pseudo-random requests and returns.
MemoryCounters after_random_requests(Device device) {
  const auto allocator = Allocator::create(make_host_api(device));
  std::vector<Allocation> held(31);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Philox random = philox(i, 0, 7);
    Allocation& slot = held[random.word[0] % held.size()];
    if (random.word[1] % 3 == 0) {
      slot.reset();
    } else {
      slot = allocator->allocate(random.word[2] % 5000,
                                 static_cast<MemoryCategory>(random.word[3] % 7));
    }
    if (i == 1000) {
      allocator->reset_peaks();
    }
  }
  return allocator->counters();
}

}  // namespace

TEST_SUITE("runtime/base/allocator") {
  TEST_CASE("size classes waste little, are aligned and grow with the request") {
    std::vector<std::size_t> sizes;
    for (std::size_t nbytes = 0; nbytes < 20000; ++nbytes) {
      sizes.push_back(nbytes);
    }
    for (int bits = 15; bits <= 61; ++bits) {
      for (const std::size_t sixteenths : {16, 17, 19, 24, 31}) {
        const std::size_t nbytes = (std::size_t{1} << bits) / 16 * sixteenths;
        sizes.insert(sizes.end(), {nbytes - 1, nbytes, nbytes + 1});
      }
    }
    std::size_t previous = 0;
    std::int64_t faults = 0;
    for (const std::size_t nbytes : sizes) {
      const std::size_t size = size_class(nbytes);
      faults += size < nbytes || size % kAlignment != 0 || size < kAlignment || size < previous;
      faults += nbytes > 512 ? (size - nbytes) > nbytes / 8 : (size - nbytes) > kAlignment;
      faults += size_class(size) != size;
      previous = size;
    }
    CHECK(faults == 0);
    CHECK(size_class(0) == 64);
    CHECK(size_class(64) == 64);
    CHECK(size_class(65) == 128);
    CHECK(size_class(1025) == 1152);
    CHECK_THROWS_WITH_AS(size_class((std::size_t{1} << 62) + 1),
                         doctest::Contains("are more than any machine can hold"), OutOfMemoryError);
  }

  TEST_CASE("a second allocation of a class asks the system for nothing") {
    const auto allocator = Allocator::create(make_host_api(Device::cpu()));
    std::byte* const first = allocator->allocate(1000, MemoryCategory::Activation).data();
    CHECK(reinterpret_cast<std::uintptr_t>(first) % kAlignment == 0);
    CHECK(allocator->counters().raw_allocations == 1);
    const Allocation again = allocator->allocate(961, MemoryCategory::Gradient);
    CHECK(again.data() == first);
    CHECK(allocator->counters().raw_allocations == 1);
    const Allocation other = allocator->allocate(1000, MemoryCategory::Gradient);
    CHECK(other.data() != first);
    CHECK(allocator->counters().raw_allocations == 2);
    std::memset(other.data(), 1, 1000);
  }

  TEST_CASE("an allocation of nothing is a block of the smallest class") {
    const auto allocator = Allocator::create(make_host_api(Device::cpu()));
    const Allocation nothing = allocator->allocate(0, MemoryCategory::Data);
    CHECK(nothing);
    CHECK(nothing.data() != nullptr);
    CHECK(allocator->counters().live_of(MemoryCategory::Data) == 64);
  }

  TEST_CASE("counters hold live and peak bytes by category") {
    const auto allocator = Allocator::create(make_host_api(Device::cpu()));
    const MemoryCounters& counters = allocator->counters();
    Allocation parameter = allocator->allocate(100, MemoryCategory::Parameter);
    Allocation gradient = allocator->allocate(200, MemoryCategory::Gradient);
    CHECK(counters.live_of(MemoryCategory::Parameter) == 128);
    CHECK(counters.live_of(MemoryCategory::Gradient) == 256);
    CHECK(counters.live_total == 384);
    gradient.reset();
    CHECK(counters.live_of(MemoryCategory::Gradient) == 0);
    CHECK(counters.peak_of(MemoryCategory::Gradient) == 256);
    CHECK(counters.live_total == 128);
    CHECK(counters.peak_total == 384);
    CHECK(counters.raw_bytes == 384);
    allocator->reset_peaks();
    CHECK(counters.peak_of(MemoryCategory::Gradient) == 0);
    CHECK(counters.peak_total == 128);
    allocator->release_cached();
    CHECK(counters.raw_bytes == 128);
    CHECK(counters.raw_allocations == 2);
    parameter.reset();
    CHECK(counters.live_total == 0);
  }

  TEST_CASE("an allocation moves with its block and keeps its allocator alive") {
    auto allocator = Allocator::create(make_host_api(Device::cpu()));
    Allocation a = allocator->allocate(64, MemoryCategory::Data);
    Allocation b = allocator->allocate(64, MemoryCategory::Data);
    std::byte* const block = a.data();
    b = std::move(a);
    CHECK(b.data() == block);
    CHECK(allocator->counters().live_total == 64);
    Allocation c(std::move(b));
    CHECK(c.data() == block);
    CHECK(allocator->counters().live_total == 64);
    allocator.reset();
    std::memset(c.data(), 3, 64);
    c.reset();
    CHECK_FALSE(c);
    CHECK(c.data() == nullptr);
  }

  TEST_CASE("the meta allocator counts what the host one counts") {
    const MemoryCounters host = after_random_requests(Device::cpu());
    const MemoryCounters meta = after_random_requests(Device::meta());
    CHECK(host == meta);
    CHECK(host.peak_total > 0);
    CHECK(host.raw_allocations > 0);
    CHECK(host.raw_allocations < 1000);
    const auto allocator = Allocator::create(make_host_api(Device::meta()));
    CHECK(allocator->allocate(std::size_t{1} << 50, MemoryCategory::Parameter).data() == nullptr);
    CHECK(allocator->counters().peak_total == std::int64_t{1} << 50);
  }

  TEST_CASE("memory that the system does not have is a named error with the figures" *
            doctest::skip(!kRefusesLargeRequests)) {
    const auto allocator = Allocator::create(make_host_api(Device::cpu()));
    const Allocation held = allocator->allocate(640, MemoryCategory::Data);
    allocator->allocate(1024, MemoryCategory::Data).reset();
    CHECK_THROWS_WITH_AS(
        allocator->allocate(std::size_t{1} << 50, MemoryCategory::Data),
        doctest::Contains("allocate: there are no 1125899906842624 bytes more of cpu for data on "
                          "stream host: 640 are in use; the largest of them: 640 data"),
        OutOfMemoryError);
    CHECK(allocator->counters().live_total == 640);
    CHECK_NOTHROW(allocator->allocate(64, MemoryCategory::Data));
  }

  TEST_CASE("a program without CUDA says so when a GPU is asked for") {
    CHECK_THROWS_WITH_AS(
        make_cuda_api(1),
        doctest::Contains("cuda:1: this program was built without CUDA: configure with the preset"),
        DeviceError);
  }
}

}  // namespace fsdptrain
