#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/process_group.h"
#include "comm/world.h"
#include "tests/support/rank_backends.h"

// What ranks that do not call the same learn, and that no byte of it is used.
namespace fsdptrain::comm {
namespace {

using testing::all_backends;
using testing::Backend;
using testing::thread_ranks;
using namespace std::chrono_literals;

template <class E>
bool is_a(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}

// Runs `body` on ranks of every backend. At least one rank ends with an E, every other one with it
// or a PeerError, and all texts hold all of `parts`.
template <class E>
void check_fails(int num_ranks, const std::function<void(World&)>& body,
                 const std::vector<std::string>& parts, bool checks = false) {
  for (const Backend backend : all_backends()) {
    CAPTURE(testing::name_of(backend));
    ThreadRanks ranks = thread_ranks(backend, num_ranks);
    ranks.world.checks = checks;
    const std::vector<std::exception_ptr> errors = try_ranks(ranks, body);
    int num_causes = 0;
    for (const std::exception_ptr& error : errors) {
      REQUIRE(error);
      num_causes += is_a<E>(error) ? 1 : 0;
      CHECK((is_a<E>(error) || is_a<PeerError>(error)));
      const std::string text = text_of(error);
      CAPTURE(text);
      for (const std::string& part : parts) {
        CHECK(text.find(part) != std::string::npos);
      }
    }
    CHECK(num_causes >= 1);
  }
}

// Every rank runs the operation, rank 1 the other one.
void check_mismatch(const std::function<Operation(int rank)>& usual,
                    const std::function<Operation(int rank)>& other,
                    const std::vector<std::string>& parts) {
  check_fails<MismatchError>(
      3,
      [&](World& world) {
        world.group().issue((world.rank() == 1 ? other : usual)(world.rank())).wait();
      },
      parts);
}

Tensor ones(std::int64_t numel, DType dtype = DType::Float32) {
  return Tensor::full({numel}, 1, dtype);
}

Operation sum_of_ten(int /*rank*/) {
  return all_reduce(ones(10));
}

}  // namespace

TEST_SUITE("comm/mismatch") {
  TEST_CASE("another operation is named with both sides") {
    check_mismatch(
        sum_of_ten, [](int) { return all_gather(ones(30), ones(10)); },
        {"op: ", "all_reduce on rank", "all_gather on rank 1", "sequence 1 of group 'world'"});
  }

  TEST_CASE("another order is another operation at the first of them") {
    check_fails<MismatchError>(2,
                               [](World& world) {
                                 const Tensor a = ones(4);
                                 const Tensor b = ones(4);
                                 const Operation sum = all_reduce(a, {}, {.group = 1});
                                 const Operation mean =
                                     all_reduce(b, {ReduceOp::Avg}, {.group = 2});
                                 ProcessGroup& group = world.group();
                                 Work first = group.issue(world.rank() == 0 ? sum : mean);
                                 Work second = group.issue(world.rank() == 0 ? mean : sum);
                                 second.wait();
                                 first.wait();
                               },
                               {"tag: ", "group 1", "group 2", "reduce op: ", "avg", "sequence 1"});
  }

  TEST_CASE("another count is named") {
    check_mismatch(sum_of_ten, [](int) { return all_reduce(ones(11)); },
                   {"shape: ", "[10] on rank", "[11] on rank 1"});
  }

  TEST_CASE("another shape of as many elements is named") {
    check_mismatch(
        [](int) {
          return all_reduce(Tensor::full({2, 6}, 1));
        },
        [](int) {
          return all_reduce(Tensor::full({3, 4}, 1));
        },
        {"shape: ", "[2, 6] on rank", "[3, 4] on rank 1"});
  }

  TEST_CASE("another dtype is named") {
    check_mismatch(sum_of_ten, [](int) { return all_reduce(ones(10, DType::BFloat16)); },
                   {"dtype: ", "float32 on rank", "bfloat16 on rank 1"});
  }

  TEST_CASE("another reduction is named") {
    check_mismatch(sum_of_ten, [](int) { return all_reduce(ones(10), {ReduceOp::Max}); },
                   {"reduce op: ", "sum on rank", "max on rank 1"});
    check_mismatch(
        [](int) {
          return all_reduce(ones(10), {ReduceOp::PremulSum, 0.5});
        },
        [](int) {
          return all_reduce(ones(10), {ReduceOp::PremulSum, 0.25});
        },
        {"factor: ", "0.5 on rank", "0.25 on rank 1"});
  }

  TEST_CASE("another root is named") {
    check_mismatch([](int) { return broadcast(ones(10), 0); },
                   [](int) { return broadcast(ones(10), 2); },
                   {"root: ", "rank 0 on rank", "rank 2 on rank 1"});
  }

  TEST_CASE("another tag is named") {
    check_mismatch(
        [](int) {
          return all_reduce(ones(10), {}, {.group = 3, .direction = Direction::Backward});
        },
        [](int) {
          return all_reduce(ones(10), {}, {.group = 4, .direction = Direction::Backward});
        },
        {"tag: ", "root 0 group 3 invocation 0 backward on rank",
         "root 0 group 4 invocation 0 backward on rank 1"});
  }

  TEST_CASE("other counts of the ranks are named") {
    const auto with = [](Counts counts) {
      return [counts](int rank) {
        const std::int64_t mine = counts[static_cast<std::size_t>(rank)];
        return all_gatherv(ones(6), ones(mine), counts);
      };
    };
    check_mismatch(with({1, 2, 3}), with({2, 2, 2}),
                   {"hash of the counts: ", "counts 1,2,3", "counts 2,2,2"});
  }

  TEST_CASE("two groups of equal size swapped on one rank are told apart") {
    check_fails<MismatchError>(2,
                               [](World& world) {
                                 const auto left = world.new_group({0, 1}, "left");
                                 const auto right = world.new_group({0, 1}, "right");
                                 ProcessGroup& first = world.rank() == 0 ? *left : *right;
                                 ProcessGroup& second = world.rank() == 0 ? *right : *left;
                                 const Tensor a = ones(8);
                                 const Tensor b = ones(8);
                                 Work work = first.issue(all_reduce(a));
                                 Work next = second.issue(all_reduce(b));
                                 work.wait();
                                 next.wait();
                               },
                               {"group: ", "left on rank 0", "right on rank 1"});
  }

  TEST_CASE("other members are named when the group is made") {
    check_fails<MismatchError>(
        3,
        [](World& world) {
          world.new_group(world.rank() == 1 ? std::vector{0, 1} : std::vector{0, 1, 2}, "some");
        },
        {"create_group", "members 0,1,2", "members 0,1"});
  }

  TEST_CASE("nothing of a refused collective reaches the output") {
    for (const Backend backend : all_backends()) {
      CAPTURE(testing::name_of(backend));
      std::array<Tensor, 2> outputs;
      try_ranks(thread_ranks(backend, 2), [&](World& world) {
        const Tensor output = Tensor::full({8}, -1);
        outputs[static_cast<std::size_t>(world.rank())] = output;
        const Tensor other = Tensor::full({4}, 7);
        world.group().issue(recv(output, 1 - world.rank(), {.group = 1})).wait();
        world.group().issue(send(other, 1 - world.rank(), {.group = 2})).wait();
      });
      for (const Tensor& output : outputs) {
        REQUIRE(output.defined());
        for (const float value : output.values<float>()) {
          CHECK(value == -1);
        }
      }
    }
  }

  TEST_CASE("a missing call is found at the timeout, with who is where") {
    for (const Backend backend : all_backends()) {
      CAPTURE(testing::name_of(backend));
      ThreadRanks ranks = thread_ranks(backend, 3);
      ranks.world.timeout = 200ms;
      std::latch failed(2);
      const auto errors = try_ranks(ranks, [&](World& world) {
        world.name_group(0, 6, "h.3.attn.weight");
        world.group().issue(barrier({.group = 5})).wait();
        if (world.rank() == 2) {
          // It does something else for long.
          failed.wait();
          return;
        }
        try {
          world.group().issue(all_reduce(ones(4), {}, {.group = 6})).wait();
        } catch (...) {
          failed.count_down();
          throw;
        }
      });
      for (const int rank : {0, 1}) {
        const std::string text = text_of(errors[static_cast<std::size_t>(rank)]);
        CAPTURE(text);
        const bool is_cause = is_a<TimeoutError>(errors[static_cast<std::size_t>(rank)]);
        CHECK(
            text.find("all_reduce of float32[4], sequence 2 of group 'world', tag root 0 group 6 "
                      "invocation 0, for h.3.attn.weight did not end in 0.2 s, missing: rank 2") !=
            std::string::npos);
        // A line for each rank, in the text of the one that looked; the other has one line.
        for (const char* part :
             {"\n  rank 2 ended barrier of uint8[], sequence 1", "  rank 0 waits in all_reduce",
              "\n  rank 1 waits in all_reduce"}) {
          CHECK((text.find(part) != std::string::npos) == is_cause);
        }
        CHECK(text.find("\\n") == std::string::npos);
      }
      CHECK((is_a<TimeoutError>(errors[0]) || is_a<TimeoutError>(errors[1])));
      CHECK_FALSE(errors[2]);
    }
  }

  TEST_CASE("a call that a rank skipped meets the next one at once") {
    check_fails<MismatchError>(
        2,
        [](World& world) {
          if (world.rank() == 0) {
            world.group().issue(all_reduce(ones(4), {}, {.group = 1})).wait();
          }
          world.group().issue(all_reduce(ones(4), {}, {.group = 2})).wait();
        },
        {"tag: root 0 group 1 invocation 0 on rank 0, root 0 group 2"});
  }

  TEST_CASE("a rank that leaves early is named at once") {
    check_fails<DataError>(3,
                           [](World& world) {
                             if (world.rank() == 1) {
                               throw DataError("no more tokens");
                             }
                             world.group().issue(all_reduce(ones(4))).wait();
                           },
                           {"no more tokens"});
    for (const Backend backend : all_backends()) {
      const auto errors = try_ranks(thread_ranks(backend, 2), [](World& world) {
        if (world.rank() == 0) {
          world.group().issue(all_reduce(ones(4), {}, {.group = 9})).wait();
        }
      });
      CHECK(text_of(errors[0]).find("rank 1 left before the end of all_reduce of float32[4]") !=
            std::string::npos);
      CHECK(text_of(errors[0]).find("group 9") != std::string::npos);
      CHECK_FALSE(errors[1]);
    }
  }

  TEST_CASE("a monitored barrier names all who are missing, whoever that is") {
    for (const std::vector<int>& missing : {std::vector{1, 3}, {0}, {2}}) {
      for (const Backend backend : all_backends()) {
        CAPTURE(testing::name_of(backend));
        std::atomic<int> num_done = 0;
        const auto errors = try_ranks(thread_ranks(backend, 4), [&](World& world) {
          if (std::count(missing.begin(), missing.end(), world.rank()) == 0) {
            world.group().monitored_barrier(100ms);
          }
          ++num_done;
          // They stay until the others have failed.
          world.control().issue(barrier()).wait();
        });
        CHECK(num_done == static_cast<int>(missing.size()));
        const std::string named = missing.size() == 1
                                      ? "missing: rank " + std::to_string(missing[0])
                                      : "missing: ranks 1, 3";
        for (const auto& error : errors) {
          CHECK(text_of(error).find(named) != std::string::npos);
        }
      }
    }
    run_ranks(thread_ranks(Backend::Threads, 4),
              [](World& world) { world.group().monitored_barrier(10s); });
  }

  TEST_CASE("a Work that is dropped is raised at the next call, and ends the others") {
    check_fails<MisuseError>(
        2,
        [](World& world) {
          if (world.rank() == 0) {
            static_cast<void>(world.group().issue(all_reduce(ones(4), {}, {.group = 7})));
          } else {
            world.group().issue(all_reduce(ones(4), {}, {.group = 7})).wait();
          }
          world.group().issue(barrier()).wait();
        },
        {"the Work of all_reduce of float32[4]", "group 7", "was dropped without a wait"});
  }

  TEST_CASE("what one rank can see is refused before others are told") {
    run_ranks(thread_ranks(Backend::Threads, 2), [](World& world) {
      ProcessGroup& group = world.group();
      CHECK_THROWS_WITH_AS(static_cast<void>(group.issue(all_gather(ones(7), ones(4)))),
                           doctest::Contains("2 ranks with 4 elements each need 8 in all, got 7"),
                           ShapeError);
      CHECK_THROWS_WITH_AS(static_cast<void>(group.issue(
                               all_reduce(Tensor::empty({4}, DType::Float32, Device::meta())))),
                           doctest::Contains("the input must be on cpu"), DeviceError);
      CHECK_THROWS_WITH_AS(
          static_cast<void>(group.issue(all_reduce(ones(4, DType::Int32), {ReduceOp::Avg}))),
          doctest::Contains("avg is for floating dtypes, got int32"), DTypeError);
      CHECK_THROWS_WITH_AS(static_cast<void>(group.issue(broadcast(ones(4), 2))),
                           doctest::Contains("the root must be a rank of the group, 0 to 1, got 2"),
                           ConfigError);
      CHECK_THROWS_WITH_AS(static_cast<void>(group.issue(send(ones(4), world.rank()))),
                           doctest::Contains("cannot exchange bytes with itself"), MisuseError);
      const Tensor whole = ones(8);
      CHECK_THROWS_WITH_AS(
          static_cast<void>(group.issue(all_gather(whole, whole.alias({4}, {1}, 2)))),
          doctest::Contains("overlaps the whole"), MisuseError);
      CHECK_THROWS_WITH_AS(static_cast<void>(group.issue(all_gather(ones(8), Tensor()))),
                           doctest::Contains("the input is undefined"), StorageError);
      CHECK_THROWS_WITH_AS(static_cast<void>(group.batch({})), doctest::Contains("no operation"),
                           MisuseError);
      CHECK_THROWS_WITH_AS(world.new_group({0, 2}, "far"), doctest::Contains("must be 0 to 1"),
                           ConfigError);
      CHECK_THROWS_WITH_AS(world.new_group({0, 0}, "twice"), doctest::Contains("twice"),
                           ConfigError);
      CHECK_THROWS_WITH_AS(world.new_group({1 - world.rank()}, "other"),
                           doctest::Contains("is not one of"), ConfigError);
      group.issue(barrier()).wait();
    });
  }

  TEST_CASE("a tensor whose bytes are gone before the wait is named") {
    for (const Backend backend : all_backends()) {
      CAPTURE(testing::name_of(backend));
      std::latch has_failed(1);
      const auto errors = try_ranks(thread_ranks(backend, 2), [&](World& world) {
        const Tensor tensor = ones(4);
        tensor.storage()->set_name("the gradient");
        Work work = world.group().issue(all_gather(ones(8), tensor));
        if (world.rank() == 1) {
          has_failed.wait();
          work.wait();
          return;
        }
        tensor.storage()->release();
        try {
          work.wait();
        } catch (...) {
          has_failed.count_down();
          throw;
        }
      });
      CHECK(is_a<StorageError>(errors[0]));
      CHECK(text_of(errors[0]).find("the gradient") != std::string::npos);
      CHECK(text_of(errors[1]).find("the gradient") != std::string::npos);
    }
  }

  TEST_CASE("another thread may not issue") {
    run_ranks(thread_ranks(Backend::Threads, 1), [](World& world) {
      world.group().issue(barrier()).wait();
      std::exception_ptr error;
      std::thread([&] {
        try {
          static_cast<void>(world.group().issue(barrier()));
        } catch (...) {
          error = std::current_exception();
        }
      }).join();
      CHECK(text_of(error).find("another thread issues the operations") != std::string::npos);
    });
  }

  TEST_CASE("an abort ends all waits with its reason") {
    check_fails<CommError>(3,
                           [](World& world) {
                             if (world.rank() == 2) {
                               world.group().abort("the operator said so");
                             }
                             world.group().issue(barrier()).wait();
                           },
                           {"the operator said so"});
  }

  TEST_CASE("the checking mode names the place of the call") {
    check_fails<MismatchError>(
        2,
        [](World& world) {
          world.group().issue(all_reduce(ones(world.rank() == 0 ? 4 : 5))).wait();
        },
        {"called at tests/comm/mismatch_test.cpp:"}, true);
  }

  TEST_CASE("the checking mode is asked for by the environment") {
    ::setenv("FSDPTRAIN_DEBUG", "detail", 1);
    CHECK(checks_from_environment());
    ::setenv("FSDPTRAIN_DEBUG", "", 1);
    CHECK_FALSE(checks_from_environment());
    ::setenv("FSDPTRAIN_DEBUG", "INFO", 1);
    CHECK_THROWS_WITH_AS(checks_from_environment(), doctest::Contains("got 'INFO'"), ConfigError);
    ::unsetenv("FSDPTRAIN_DEBUG");
    CHECK_FALSE(checks_from_environment());
  }
}

}  // namespace fsdptrain::comm
