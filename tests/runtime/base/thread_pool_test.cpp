#include "runtime/base/thread_pool.h"

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain {
namespace {

constexpr int kMaxThreads = 8;

// What the tasks of one region see of each other.
struct Region {
  explicit Region(std::int64_t count) : runs(static_cast<std::size_t>(count)), size(count) {}

  std::vector<std::atomic<int>> runs;
  std::int64_t size;
  std::array<std::atomic<int>, kMaxThreads> users{};
  std::atomic<int> faults{0};
  int threads = 0;
};

void visit(void* context, std::int64_t index, int thread) {
  auto& region = *static_cast<Region*>(context);
  if (index < 0 || index >= region.size || thread < 0 || thread >= region.threads) {
    ++region.faults;
    return;
  }
  // Nobody else uses this thread's number meanwhile.
  std::atomic<int>& users = region.users[static_cast<std::size_t>(thread)];
  region.faults += users.fetch_add(1) != 0;
  ++region.runs[static_cast<std::size_t>(index)];
  std::this_thread::yield();
  users.fetch_sub(1);
}

// Leaves the process so many more bytes of addresses while it lives: the stacks of a few threads.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(std::size_t more_bytes) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    REQUIRE(getrlimit(RLIMIT_AS, &old_) == 0);
    rlimit limit = old_;
    limit.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + more_bytes;
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &old_); }

 private:
  rlimit old_{};
};

}  // namespace

TEST_SUITE("runtime/base/thread_pool") {
  TEST_CASE("each index runs once, under a thread number that no other task has") {
    for (const int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      CHECK(pool.threads() == threads);
      for (const std::int64_t count : {0, 1, 2, 3, 17, 1009}) {
        CAPTURE(threads);
        CAPTURE(count);
        Region region(count);
        region.threads = threads;
        pool.run(count, visit, &region);
        int wrong = 0;
        for (const auto& runs : region.runs) {
          wrong += runs != 1;
        }
        CHECK(wrong == 0);
        CHECK(region.faults == 0);
      }
    }
  }

  TEST_CASE("thousands of small regions in a row lose no task") {
    for (const int threads : {2, 3, 5}) {
      ThreadPool pool(threads);
      std::atomic<std::int64_t> sum{0};
      std::int64_t expected = 0;
      for (std::int64_t region = 0; region < 2000; ++region) {
        const std::int64_t count = region % 7;
        pool.run(
            count,
            [](void* context, std::int64_t index, int) {
              *static_cast<std::atomic<std::int64_t>*>(context) += index + 1;
            },
            &sum);
        expected += count * (count + 1) / 2;
        REQUIRE(sum == expected);
      }
    }
  }

  TEST_CASE("what tasks wrote is visible when run returns") {
    ThreadPool pool(3);
    std::vector<std::int64_t> values(1000);
    for (int round = 0; round < 100; ++round) {
      pool.run(
          1000,
          [](void* context, std::int64_t index, int) {
            (*static_cast<std::vector<std::int64_t>*>(context))[static_cast<std::size_t>(index)] +=
                index;
          },
          &values);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      REQUIRE(values[i] == 100 * static_cast<std::int64_t>(i));
    }
  }

  TEST_CASE("a pool that never ran ends, and so does one whose workers sleep") {
    for (int round = 0; round < 20; ++round) {
      const ThreadPool idle(4);
    }
    ThreadPool pool(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> runs{0};
    pool.run(
        2, [](void* context, std::int64_t, int) { ++*static_cast<std::atomic<int>*>(context); },
        &runs);
    CHECK(runs == 2);
  }

  TEST_CASE("a number of threads that cannot be is a named error") {
    CHECK_THROWS_WITH_AS(ThreadPool(0), doctest::Contains("threads: must be 1 to 4096, got 0"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(ThreadPool(-3), doctest::Contains("got -3"), ConfigError);
    CHECK_THROWS_WITH_AS(ThreadPool(4097), doctest::Contains("got 4097"), ConfigError);
  }

// A sanitizer cannot live under a limit on address space.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  TEST_CASE("a thread that the system refuses is an error, and the others end") {
    std::string text;
    {
      const AddressSpaceLimit limit(std::size_t{1} << 28);
      try {
        const ThreadPool pool(4096);
      } catch (const Error& error) {
        text = error.what();
      }
    }
    CAPTURE(text);
    CHECK(text.starts_with("threads: wanted 4096, but only "));
    CHECK(text.find("ulimit -u") != std::string::npos);
    CHECK_NOTHROW(ThreadPool(4));
  }
#endif
}

}  // namespace fsdptrain
