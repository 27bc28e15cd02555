#include "comm/process_group.h"

#include <latch>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/flight/reader.h"
#include "comm/flight/text.h"
#include "comm/world.h"
#include "tests/support/rank_backends.h"

namespace fsdptrain::comm {
namespace {

using testing::all_backends;
using testing::Backend;
using testing::thread_ranks;

Tensor filled(float value) {
  return Tensor::full({5}, value);
}

}  // namespace

TEST_SUITE("comm/process_group") {
  TEST_CASE("many operations may be open, and are waited for in any order") {
    for (const Backend backend : all_backends()) {
      CAPTURE(testing::name_of(backend));
      run_ranks(thread_ranks(backend, 3), [](World& world) {
        std::vector<Tensor> tensors;
        std::vector<Work> works;
        for (int i = 0; i < 100; ++i) {
          tensors.push_back(filled(static_cast<float>(i + world.rank())));
          works.push_back(world.group().issue(all_reduce(tensors.back())));
        }
        while (!works.empty()) {
          works.back().wait();
          // Again, at once.
          works.back().wait();
          works.pop_back();
        }
        for (int i = 0; i < 100; ++i) {
          CHECK(tensors[static_cast<std::size_t>(i)].item() == 3 * i + 3);
        }
      });
    }
  }

  TEST_CASE("a batch has at most as many operations as may be open") {
    run_ranks(thread_ranks(Backend::Threads, 2), [](World& world) {
      const std::vector<Operation> fits(Link::kMaxOpen, barrier());
      world.group().batch(fits).wait();
      const std::vector<Operation> many(Link::kMaxOpen + 1, barrier());
      CHECK_THROWS_WITH_AS(static_cast<void>(world.group().batch(many)),
                           doctest::Contains("at most 32 operations, got 33"), MisuseError);
    });
  }

  TEST_CASE("transfers of a batch meet whatever their order on either side") {
    for (const Backend backend : all_backends()) {
      CAPTURE(testing::name_of(backend));
      run_ranks(thread_ranks(backend, 4), [](World& world) {
        // Everyone sends to everyone, large ones too, the ranks in different orders.
        std::vector<Operation> operations;
        std::vector<std::pair<int, Tensor>> received;
        for (int i = 1; i < world.size(); ++i) {
          const int peer = (world.rank() + i * (world.rank() % 2 == 0 ? 1 : 3)) % world.size();
          const std::int64_t numel = 300'000;
          received.emplace_back(peer, Tensor::empty({numel}, DType::Float32));
          operations.push_back(recv(received.back().second, peer));
          operations.insert(operations.begin(),
                            send(Tensor::full({numel}, world.rank() * 10 + peer), peer));
        }
        world.group().batch(std::move(operations)).wait();
        for (const auto& [peer, tensor] : received) {
          CHECK(tensor.item(0) == peer * 10 + world.rank());
          CHECK(tensor.item(299'999) == peer * 10 + world.rank());
        }
      });
    }
  }

  TEST_CASE("groups of some ranks run beside each other") {
    for (const Backend backend : all_backends()) {
      CAPTURE(testing::name_of(backend));
      run_ranks(thread_ranks(backend, 3), [](World& world) {
        // Pairs in a ring: every rank is in two of them.
        std::vector<std::unique_ptr<ProcessGroup>> pairs(3);
        for (const std::size_t first : {0u, 1u, 2u}) {
          const int a = static_cast<int>(first);
          const int b = (a + 1) % 3;
          if (world.rank() == a || world.rank() == b) {
            pairs[first] = world.new_group({a, b}, "pair");
            CHECK(pairs[first]->rank() == (world.rank() == a ? 0 : 1));
          }
        }
        for (int round = 0; round < 20; ++round) {
          for (std::size_t first = 0; first < 3; ++first) {
            if (pairs[first]) {
              const Tensor tensor = filled(static_cast<float>(world.rank()));
              pairs[first]->issue(all_reduce(tensor)).wait();
              CHECK(tensor.item() == static_cast<double>(first + (first + 1) % 3));
            }
          }
          world.group().issue(barrier()).wait();
        }
      });
    }
  }

  TEST_CASE("a group of one rank, a world of one, and a group that is made again") {
    for (const Backend backend : all_backends()) {
      run_ranks(thread_ranks(backend, 2), [](World& world) {
        const auto alone = world.new_group({world.rank()}, "alone");
        const Tensor tensor = filled(2);
        alone->issue(all_reduce(tensor, {ReduceOp::Avg})).wait();
        CHECK(tensor.item() == 2);
        for (int i = 0; i < 3; ++i) {
          const auto both = world.new_group({1, 0}, "both");
          CHECK(both->rank() == 1 - world.rank());
          const Tensor part = filled(static_cast<float>(world.rank()));
          const Tensor whole = Tensor::empty({10}, DType::Float32);
          both->issue(all_gather(whole, part)).wait();
          CHECK(whole.item(0) == 1);
          CHECK(whole.item(9) == 0);
        }
      });
    }
    run_ranks(thread_ranks(Backend::Threads, 1), [](World& world) {
      CHECK(world.exchange("hello") == std::vector<std::string>{"hello"});
      world.group().monitored_barrier(std::chrono::seconds(1));
    });
  }

  TEST_CASE("texts of all ranks come in their order, empty ones too") {
    for (const Backend backend : all_backends()) {
      run_ranks(thread_ranks(backend, 3), [](World& world) {
        const std::string mine(static_cast<std::size_t>(world.rank()) * 1000, 'x');
        const std::vector<std::string> all = world.exchange(mine);
        REQUIRE(all.size() == 3);
        for (std::size_t rank = 0; rank < 3; ++rank) {
          CHECK(all[rank] == std::string(rank * 1000, 'x'));
        }
      });
    }
  }

  TEST_CASE("operations behind one that is waited for do not take its slots") {
    for (const Backend backend : all_backends()) {
      CAPTURE(testing::name_of(backend));
      for (const int num_ranks : {2, 3}) {
        CAPTURE(num_ranks);
        run_ranks(thread_ranks(backend, num_ranks), [](World& world) {
          for (const std::int64_t numel : {1000, 1'000'000}) {
            const Tensor a = Tensor::full({numel}, 1);
            const Tensor b = Tensor::full({numel}, 2);
            const Tensor whole = Tensor::empty({numel * world.size()}, DType::Float32);
            Work first = world.group().issue(all_reduce(a));
            Work second = world.group().issue(all_reduce(b));
            Work third = world.group().issue(all_gather(whole, b));
            Work fourth = world.group().issue(broadcast(b, 0));
            first.wait();
            CHECK(a.item(numel - 1) == world.size());
            fourth.wait();
            second.wait();
            third.wait();
            CHECK(b.item(0) == 2 * world.size());
          }
        });
      }
    }
  }

  TEST_CASE("what was staged and read leaves nothing behind, however many are open") {
    run_ranks(thread_ranks(Backend::Shm, 2), [](World& world) {
      const Tensor part = Tensor::full({100}, 1);
      for (int round = 0; round < 2000; ++round) {
        std::vector<Operation> operations;
        for (int i = 0; i < 16; ++i) {
          operations.push_back(send(part, 1 - world.rank()));
          operations.push_back(recv(Tensor::empty({100}, DType::Float32), 1 - world.rank()));
        }
        world.group().batch(std::move(operations)).wait();
      }
      std::vector<Work> works;
      for (int round = 0; round < 2000; ++round) {
        const Tensor tensor = Tensor::full({100}, 1);
        works.push_back(world.group().issue(broadcast(tensor, 0)));
        for (int i = 0; i < 31; ++i) {
          works.push_back(world.group().issue(barrier()));
        }
        for (Work& work : works) {
          work.wait();
        }
        works.clear();
      }
    });
  }

  TEST_CASE("the control group goes on while operations of training are open") {
    run_ranks(thread_ranks(Backend::Shm, 2), [](World& world) {
      const Tensor tensor = filled(1);
      Work work = world.group().issue(all_reduce(tensor));
      CHECK(world.exchange("count").size() == 2);
      work.wait();
      CHECK(tensor.item() == 2);
    });
  }

  TEST_CASE("the checking mode lets two ranks of three send") {
    ThreadRanks ranks = thread_ranks(Backend::Threads, 3);
    ranks.world.checks = true;
    run_ranks(ranks, [](World& world) {
      const Tensor tensor = filled(static_cast<float>(world.rank()));
      if (world.rank() < 2) {
        world.group().issue(world.rank() == 0 ? send(tensor, 1) : recv(tensor, 0)).wait();
        CHECK(tensor.item() == 0);
      }
      world.group().issue(barrier()).wait();
    });
  }

  TEST_CASE("a wait that failed fails again, and a batch that is refused changes nothing") {
    const auto errors = try_ranks(thread_ranks(Backend::Shm, 2), [](World& world) {
      const std::vector<Operation> many(Link::kMaxOpen + 1, barrier());
      if (world.rank() == 0) {
        CHECK_THROWS_AS(static_cast<void>(world.group().batch(many)), MisuseError);
      }
      world.group().issue(barrier()).wait();
      Work work = world.group().issue(
          all_reduce(filled(1), {}, {.group = 1u + static_cast<std::uint32_t>(world.rank())}));
      CHECK_THROWS_AS(work.wait(), CommError);
      CHECK_THROWS_AS(work.wait(), CommError);
      throw DataError("as planned");
    });
    for (const auto& error : errors) {
      CHECK_THROWS_AS(std::rethrow_exception(error), DataError);
    }
  }

  TEST_CASE("a Work dropped by an exception that is caught is told when its rank leaves") {
    const auto errors = try_ranks(thread_ranks(Backend::Threads, 2), [](World& world) {
      if (world.rank() == 0) {
        try {
          Work work = world.group().issue(all_reduce(filled(1)));
          throw DataError("no matter");
        } catch (const DataError&) {
          return;
        }
      }
      world.group().issue(all_reduce(filled(1))).wait();
    });
    CHECK_FALSE(errors[0]);
    CHECK_THROWS_AS(std::rethrow_exception(errors[1]), PeerError);
  }

  TEST_CASE("a failure in training ends a wait in the control group at once") {
    for (const Backend backend : all_backends()) {
      CAPTURE(testing::name_of(backend));
      std::latch has_begun(1);
      std::latch is_over(1);
      const auto errors = try_ranks(thread_ranks(backend, 3), [&](World& world) {
        if (world.rank() == 2) {
          has_begun.count_down();
          try {
            world.control().issue(barrier()).wait();
          } catch (...) {
            is_over.count_down();
            throw;
          }
        }
        has_begun.wait();
        try {
          Work work = world.group().issue(all_reduce(Tensor::full({4 + world.rank()}, 1)));
          world.group().monitored_barrier(std::chrono::milliseconds(50));
        } catch (const CommError&) {
          // It stays, so that its leaving is not what ends the other's wait.
          is_over.wait();
          throw;
        }
      });
      for (const auto& error : errors) {
        CHECK(error);
      }
    }
  }

  TEST_CASE("what was moved from and what is over says so") {
    run_ranks(thread_ranks(Backend::Threads, 1), [](World& world) {
      Work work = world.group().issue(barrier());
      Work other = std::move(work);
      // NOLINTNEXTLINE(bugprone-use-after-move): what this test is about.
      CHECK_THROWS_WITH_AS(work.wait(), doctest::Contains("was moved from"), MisuseError);
      other.wait();
    });
  }

  TEST_CASE("the flight ring has every operation, by numbers that have names") {
    std::vector<FlightSnapshot> rings(2);
    run_ranks(thread_ranks(Backend::Threads, 2), [&](World& world) {
      const Tensor part = filled(1);
      const Tensor whole = Tensor::empty({10}, DType::Float32);
      world.name_group(0, 4, "h.0.mlp.weight");
      world.group()
          .issue(all_gather(whole, part, {.group = 4, .direction = Direction::Forward}))
          .wait();
      Work open = world.group().issue(all_reduce(part, {ReduceOp::Max}, {.group = 5}));
      rings[static_cast<std::size_t>(world.rank())] =
          read_flight_ring(world.flight_ring().memory().descriptor(), "ring");
      open.wait();
    });
    const std::vector<FlightRecord>& records = rings[0].records;
    REQUIRE(records.size() >= 4);
    const FlightRecord& gathered = records[records.size() - 2];
    CHECK(gathered.op == static_cast<std::uint8_t>(Op::AllGather));
    CHECK(gathered.state == FlightState::Completed);
    CHECK(gathered.group_name_text() == "world");
    CHECK(gathered.group_size == 2);
    CHECK(gathered.sequence == 1);
    CHECK(gathered.tag.group == 4);
    CHECK(gathered.deadline == deadline_seconds(thread_ranks(Backend::Threads, 2).world.timeout));
    CHECK(gathered.count == 5);
    CHECK(gathered.nbytes == 20);
    CHECK(gathered.reduce_op == kNoReduceOp);
    const FlightRecord& reduced = records.back();
    CHECK(reduced.state == FlightState::Posted);
    CHECK(reduced.reduce_op == static_cast<std::uint8_t>(ReduceOp::Max));
    CHECK(detail_text(reduced) == "(tag root 0 group 5 invocation 0, float32 x 5, max)");
    CHECK(place_text(gathered, rings[0].names) ==
          "all_gather seq 1 of group 'world' for h.0.mlp.weight");
  }
}

}  // namespace fsdptrain::comm
