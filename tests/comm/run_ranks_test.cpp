#include "comm/run_ranks.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/operation.h"
#include "comm/threads/thread_boards.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm {
namespace {

TEST_SUITE_BEGIN("comm/run_ranks");

TEST_CASE("every rank has its compute threads, and its number in front of what it logs") {
  for (const int threads : {1, 3}) {
    std::vector<std::string> prefixes(2);
    run_ranks({.num_ranks = 2, .threads_per_rank = threads}, [&](World& world) {
      CHECK(current_context().pool().threads() == threads);
      prefixes[static_cast<std::size_t>(world.rank())] = current_context().log_prefix();
    });
    CHECK(prefixes == std::vector<std::string>{"[rank 0] ", "[rank 1] "});
  }
  // Nothing is to be told apart.
  run_ranks({}, [](World&) { CHECK(current_context().log_prefix().empty()); });
}

TEST_CASE("no rank begins where one cannot have its threads") {
  bool has_begun = false;
  // More than any rank may have.
  CHECK_THROWS_AS(
      run_ranks({.num_ranks = 3, .threads_per_rank = 5000}, [&](World&) { has_begun = true; }),
      ConfigError);
  CHECK_FALSE(has_begun);
}

TEST_CASE("what comes out is the cause, whatever the rank, and not its echo") {
  for (int culprit = 0; culprit < 3; ++culprit) {
    const auto errors = try_ranks({.num_ranks = 3}, [&](World& world) {
      check<DataError>(world.rank() != culprit, "spoiled");
      world.control().issue(barrier()).wait();
    });
    for (int rank = 0; rank < 3; ++rank) {
      const auto& error = errors[static_cast<std::size_t>(rank)];
      REQUIRE(error != nullptr);
      if (rank == culprit) {
        CHECK_THROWS_AS(std::rethrow_exception(error), DataError);
      } else {
        CHECK_THROWS_WITH_AS(std::rethrow_exception(error), doctest::Contains("spoiled"),
                             PeerError);
      }
    }
  }
}

TEST_CASE("a rank that cannot connect ends the others, before any of them begins") {
  for (int culprit = 0; culprit < 3; ++culprit) {
    const ThreadBoards boards(3);
    bool has_begun = false;
    const auto connect = [&](int rank) {
      check<IoError>(rank != culprit, "no such device");
      return boards.connect(rank, false);
    };
    const auto errors =
        try_ranks({.num_ranks = 3, .world = {.timeout = std::chrono::hours(1)}, .connect = connect},
                  [&](World&) { has_begun = true; });
    CHECK_FALSE(has_begun);
    for (int rank = 0; rank < 3; ++rank) {
      const auto& error = errors[static_cast<std::size_t>(rank)];
      REQUIRE(error != nullptr);
      if (rank == culprit) {
        CHECK_THROWS_AS(std::rethrow_exception(error), IoError);
      } else {
        const std::string text = "rank " + std::to_string(culprit) + " failed: no such device";
        CHECK_THROWS_WITH_AS(std::rethrow_exception(error), doctest::Contains(text.c_str()),
                             PeerError);
      }
    }
  }
}

TEST_CASE("what a failed rank offered can be read until the others have ended") {
  std::atomic<int> num_ready = 0;
  std::atomic<bool> has_unwound = false;
  std::weak_ptr<Storage> offered;
  bool was_there = false;
  const auto errors = try_ranks({.num_ranks = 3}, [&](World& world) {
    if (world.rank() == 0) {
      while (num_ready < 2) {
        std::this_thread::yield();
      }
      throw Error("planted");
    }
    if (world.rank() == 2) {
      ++num_ready;
      while (!has_unwound) {
        std::this_thread::yield();
      }
      // Time enough to take everything down.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      was_there = !offered.expired();
      return;
    }
    struct Unwinding {
      ~Unwinding() { flag = true; }
      std::atomic<bool>& flag;
    } const unwinding{has_unwound};
    const Tensor tensor = Tensor::zeros({1000});
    offered = tensor.storage();
    Work work = world.group().issue(all_reduce(tensor));
    ++num_ready;
    work.wait();
  });
  CHECK(errors[1] != nullptr);
  CHECK(was_there);
  CHECK(offered.expired());
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::comm
