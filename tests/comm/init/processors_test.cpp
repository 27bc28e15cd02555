#include "runtime/base/processors.h"

#include <sched.h>

#include <doctest/doctest.h>

#include "comm/init/init.h"

// How ranks share the processors of their host.
namespace fsdptrain::comm {
namespace {

Membership of_own_launcher(int num_ranks, bool is_bound, int num_processors) {
  return {.launcher = Launcher::Own,
          .size = num_ranks,
          .local_size = num_ranks,
          .worker = WorkerSpec{.is_bound = is_bound, .num_processors = num_processors}};
}

// This thread runs on the first of its processors alone, as in a container with one.
class OneProcessor {
 public:
  OneProcessor() {
    CPU_ZERO(&before_);
    REQUIRE(::sched_getaffinity(0, sizeof before_, &before_) == 0);
    std::size_t first = 0;
    while (!CPU_ISSET(first, &before_)) {
      ++first;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;
  ~OneProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_{};
};

}  // namespace

TEST_SUITE("comm/init/processors") {
  TEST_CASE("a rank is bound where our launcher says so, however many processors it may use") {
    CHECK(is_bound(of_own_launcher(2, true, 2 * num_processors())));
    CHECK_FALSE(is_bound(of_own_launcher(2, false, num_processors())));
    CHECK_FALSE(is_bound({.launcher = Launcher::Torchrun, .size = 2, .local_size = 2}));
    const OneProcessor one;
    CHECK_FALSE(is_bound(of_own_launcher(2, false, 1)));
  }

  TEST_CASE("bound ranks have threads for all their processors, others share them") {
    const int usable = num_processors();
    CHECK(threads_of_rank(0, of_own_launcher(usable, true, usable * usable)) == usable);
    CHECK(threads_of_rank(0, of_own_launcher(usable, false, usable)) == 1);
    CHECK(threads_of_rank(0, of_own_launcher(1, false, usable)) == usable);
    CHECK(threads_of_rank(0, of_own_launcher(usable + 1, false, usable)) == 1);
    CHECK(threads_of_rank(3, of_own_launcher(2, false, usable)) == 3);
  }

  TEST_CASE("ranks of our launcher spin where their threads fit the processors they all may use") {
    CHECK(may_spin(of_own_launcher(4, true, 8), 2));
    CHECK_FALSE(may_spin(of_own_launcher(4, true, 8), 3));
    // More than the launcher may use, whatever the machine has.
    CHECK_FALSE(may_spin(of_own_launcher(2, false, 1), 1));
  }
}

}  // namespace fsdptrain::comm
