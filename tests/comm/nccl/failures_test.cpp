#include <algorithm>
#include <chrono>
#include <latch>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/collective/collective_record.h"
#include "comm/error.h"
#include "comm/flight/reader.h"
#include "comm/process_group.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"
#include "tests/comm/nccl/fake_ranks.h"

// What goes wrong on one rank, and what all of them learn of it.
namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;
using testing::FakeRanks;
using testing::in_all_orders;
using testing::is_a;
using testing::ones;
using testing::text_of;

// Issues sums until it hears that another rank is over.
void go_on(World& world) {
  const Tensor tensor = ones(world, 8);
  for (int round = 0; round < 1000; ++round) {
    world.group().issue(all_reduce(tensor, {ReduceOp::Max})).wait();
    world.finish();
  }
}

}  // namespace

TEST_SUITE("comm/nccl/failures") {
  TEST_CASE("a rank for which there is no GPU says so, and all of them end") {
    in_all_orders([](std::uint64_t seed) {
      fakecuda::Session session(fakecuda::checked({.seed = seed, .num_devices = 2}));
      ThreadRanks ranks{.num_ranks = 3};
      ranks.world.device = Device::cuda(0);
      ranks.schedule = &session.host_schedule(3);
      bool has_begun = false;
      CHECK_THROWS_WITH_AS(run_ranks(ranks, [&](World&) { has_begun = true; }),
                           doctest::Contains("cuda:2: this machine has 2 CUDA devices"),
                           DeviceError);
      CHECK_FALSE(has_begun);
      session.finish();
      static_cast<void>(session.reports());
    });
  }

  TEST_CASE("an asynchronous error of NCCL ends the world by its name, on every rank") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(3, seed);
      fakecuda::plan_nccl_fault({"world/reduce", 1, 3, ncclRemoteError});
      const auto errors = ranks.try_run(go_on);
      for (const auto& error : errors) {
        CHECK(is_a<PeerError>(error));
        CHECK(text_of(error).find("ncclRemoteError") != std::string::npos);
        CHECK(text_of(error).find("communicator 'world/reduce'") != std::string::npos);
      }
      CHECK(fakecuda::nccl_use().num_communicators == 0);
      ranks.ignore_rest();
    });
  }

  TEST_CASE("an error that shows after the launch is thrown by the wait") {
    FakeRanks ranks(1, 0);
    fakecuda::plan_nccl_fault({"world/reduce", 0, 0, ncclSystemError, true});
    const auto errors = ranks.try_run([](World& world) {
      Work work = world.group().issue(all_reduce(ones(world, 8)));
      CHECK_THROWS_WITH_AS(work.wait(), doctest::Contains("ncclSystemError"), CommError);
      throw DataError("as planned");
    });
    CHECK(is_a<DataError>(errors[0]));
    ranks.ignore_rest();
  }

  TEST_CASE("an error of NCCL's own is no peer's") {
    FakeRanks ranks(2, 0);
    fakecuda::plan_nccl_fault({"world/reduce", 0, 0, ncclInternalError});
    const auto errors = ranks.try_run(go_on);
    CHECK(is_a<CommError>(errors[0]));
    CHECK_FALSE(is_a<PeerError>(errors[0]));
    CHECK(is_a<PeerError>(errors[1]));
    ranks.ignore_rest();
  }

  TEST_CASE("a rank that throws ends the waits of the others at once, with its text") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(3, seed);
      const auto errors = ranks.try_run([](World& world) {
        const Tensor tensor = ones(world, 8);
        world.group().issue(all_reduce(tensor)).wait();
        if (world.rank() == 1) {
          throw DataError("no more data");
        }
        go_on(world);
      });
      CHECK(is_a<DataError>(errors[1]));
      for (const int rank : {0, 2}) {
        const auto& error = errors[static_cast<std::size_t>(rank)];
        CHECK(is_a<PeerError>(error));
        CHECK(text_of(error).find("rank 1 failed: no more data") != std::string::npos);
      }
      CHECK(fakecuda::nccl_use().num_communicators == 0);
      ranks.ignore_rest();
    });
  }

  TEST_CASE("abort ends all ranks with its reason, and every later call says it again") {
    FakeRanks ranks(2, 3);
    const auto errors = ranks.try_run([](World& world) {
      if (world.rank() == 0) {
        world.group().abort("enough");
      }
      CHECK_THROWS_WITH_AS(go_on(world), doctest::Contains("rank 0 failed: enough"), PeerError);
      CHECK_THROWS_WITH_AS(static_cast<void>(world.group().issue(barrier())),
                           doctest::Contains("rank 0 failed: enough"), PeerError);
      throw DataError("as planned");
    });
    for (const auto& error : errors) {
      CHECK(is_a<DataError>(error));
    }
    ranks.ignore_rest();
  }

  TEST_CASE(
      "without a schedule a rank that does not come is a timeout, with what every rank does") {
    fakecuda::Session session(fakecuda::checked({.seed = 3, .num_devices = 2}));
    ThreadRanks ranks{.num_ranks = 2};
    ranks.world.device = Device::cuda(0);
    ranks.world.timeout = 200ms;
    std::latch is_over(1);
    const auto errors = try_ranks(ranks, [&](World& world) {
      const Tensor tensor = ones(world, 8);
      world.group().issue(broadcast(tensor, 0)).wait();
      world.finish();
      if (world.rank() == 1) {
        is_over.wait();
        return;
      }
      world.group().issue(all_reduce(tensor, {}, {.group = 7})).wait();
      try {
        world.finish();
      } catch (...) {
        is_over.count_down();
        throw;
      }
    });
    CHECK(is_a<TimeoutError>(errors[0]));
    const std::string text = text_of(errors[0]);
    CAPTURE(text);
    CHECK(text.find("did not end on cuda:0 in 0.2 s") != std::string::npos);
    CHECK(text.find("rank 0 waits in all_reduce") != std::string::npos);
    CHECK(text.find("rank 1 ended broadcast") != std::string::npos);
    session.finish();
    static_cast<void>(session.reports());
  }

  TEST_CASE("a Work that is dropped is an error at the next call, and ends its communicators") {
    FakeRanks ranks(1, 0);
    const auto errors = ranks.try_run([](World& world) {
      const Tensor tensor = ones(world, 8);
      CHECK(fakecuda::nccl_use().num_communicators == 2);
      static_cast<void>(world.group().issue(all_reduce(tensor)));
      CHECK(fakecuda::nccl_use().num_communicators == 0);
      CHECK_THROWS_WITH_AS(static_cast<void>(world.group().issue(all_reduce(tensor))),
                           doctest::Contains("was dropped without a wait"), MisuseError);
      throw DataError("as planned");
    });
    CHECK(is_a<DataError>(errors[0]));
    ranks.ignore_rest();
  }

  TEST_CASE("what NCCL cannot do is refused on this rank, and the world goes on") {
    FakeRanks ranks(2, 3);
    ranks.run([](World& world) {
      const Tensor words = to_device(Tensor::full({4}, 1, DType::UInt16), world.device());
      CHECK_THROWS_WITH_AS(static_cast<void>(world.group().issue(all_reduce(words))),
                           doctest::Contains("all_reduce: NCCL does not reduce in uint16"),
                           DTypeError);
      CHECK_THROWS_WITH_AS(static_cast<void>(world.group().issue(all_reduce(Tensor::full({4}, 1)))),
                           doctest::Contains("must be on cuda:"), DeviceError);
      CHECK_THROWS_AS(static_cast<void>(world.control().issue(all_reduce(ones(world, 4)))),
                      DeviceError);
      const Tensor tensor = ones(world, 4);
      world.group().issue(all_reduce(tensor)).wait();
      CHECK(tensor.item(3) == 2);
    });
    ranks.expect_clean();
  }

  TEST_CASE("the flight ring has every operation, completed once somebody has looked") {
    FakeRanks ranks(2, 3);
    std::vector<FlightSnapshot> before(2);
    std::vector<FlightSnapshot> after(2);
    ranks.run([&](World& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      const Tensor tensor = ones(world, 8);
      const auto snapshot = [&] {
        return read_flight_ring(world.flight_ring().memory().descriptor(), "ring");
      };
      Work work = world.group().issue(
          all_reduce(tensor, {ReduceOp::Max}, {.group = 4, .direction = Direction::Backward}));
      before[rank] = snapshot();
      work.wait();
      world.finish();
      after[rank] = snapshot();
    });
    for (const auto& snapshots : {before, after}) {
      const FlightRecord& record = snapshots.at(0).records.back();
      CHECK(record.op == static_cast<std::uint8_t>(Op::AllReduce));
      CHECK(record.reduce_op == static_cast<std::uint8_t>(ReduceOp::Max));
      CHECK(record.tag.group == 4);
      CHECK(record.count == 8);
      CHECK(record.group_name_text() == "world");
    }
    CHECK(before[0].records.back().state == FlightState::Started);
    CHECK(after[0].records.back().state == FlightState::Completed);
    ranks.expect_clean();
  }

  TEST_CASE("a record has a deadline where the host waits, and none while the device works alone") {
    FakeRanks ranks(2, 3);
    std::vector<FlightSnapshot> rings(2);
    ranks.run([&](World& world) {
      Work work = world.group().issue(all_reduce(ones(world, 8)));
      // The host may compute for long from here on, also behind the end of the operation.
      rings[static_cast<std::size_t>(world.rank())] =
          read_flight_ring(world.flight_ring().memory().descriptor(), "ring");
      work.wait();
      const auto pair = world.new_group({1, 0}, "pair");
      world.finish();
      const FlightSnapshot ring =
          read_flight_ring(world.flight_ring().memory().descriptor(), "ring");
      const auto made = std::ranges::find(ring.records, static_cast<std::uint8_t>(Op::CreateGroup),
                                          &FlightRecord::op);
      CHECK((made != ring.records.end() && made->deadline != kNoDeadline));
    });
    for (const FlightSnapshot& ring : rings) {
      CHECK(ring.records.back().state == FlightState::Started);
      CHECK(ring.records.back().deadline == kNoDeadline);
    }
    ranks.expect_clean();
  }

  TEST_CASE(
      "what fails aborts both communicators at once: one would wait for the other's kernels") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      const auto errors = ranks.try_run([](World& world) {
        if (world.rank() == 1) {
          world.control().issue(barrier()).wait();
          throw DataError("no more data");
        }
        const Tensor whole = Tensor::empty({16}, DType::Float32, world.device());
        Work gather = world.group().issue(all_gather(whole, ones(world, 8)));
        Work sum = world.group().issue(all_reduce(ones(world, 8)));
        world.control().issue(barrier()).wait();
        gather.wait();
        sum.wait();
        world.finish();
      });
      CHECK(is_a<DataError>(errors[1]));
      CHECK(is_a<PeerError>(errors[0]));
      const auto reports = ranks.session().reports();
      CHECK(std::ranges::count(reports, fakecuda::ReportKind::InvalidUse,
                               &fakecuda::Report::kind) == 0);
      ranks.ignore_rest();
    });
  }

  TEST_CASE("a split that fails leaves no communicator behind, and not the one it was split from") {
    FakeRanks ranks(1, 0);
    fakecuda::plan_nccl_fault(
        {.communicator = "alone/reduce", .result = ncclSystemError, .is_of_split = true});
    const auto errors = ranks.try_run([](World& world) {
      CHECK(fakecuda::nccl_use().num_communicators == 2);
      CHECK_THROWS_WITH_AS(
          static_cast<void>(world.new_group({0}, "alone")),
          doctest::Contains("ncclCommSplit of communicator 'alone/gather': NCCL says "
                            "ncclSystemError"),
          CommError);
      CHECK(fakecuda::nccl_use().num_communicators == 0);
      throw DataError("as planned");
    });
    CHECK(is_a<DataError>(errors[0]));
    ranks.ignore_rest();
  }

  TEST_CASE("a rank shows the operation that has not ended, though those before it have") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([&](World& world) {
        const Tensor tensor = ones(world, 8);
        const Tensor other = ones(world, 8);
        Work first = world.group().issue(all_reduce(tensor));
        if (world.rank() == 1) {
          world.control().issue(barrier()).wait();
        }
        Work second = world.group().issue(broadcast(other, 0));
        const auto position = [&] { return ranks.link(world.rank()).position(world.rank()); };
        if (world.rank() == 0) {
          first.wait();
          current_context().device(world.device()).compute_stream().synchronize();
          // It looks at what has passed: the first one.
          second.wait();
          CHECK(position().progress == Progress::Posted);
          CHECK(position().frame.op == Op::Broadcast);
          world.control().issue(barrier()).wait();
        } else {
          first.wait();
          second.wait();
        }
        world.finish();
        CHECK(position().progress == Progress::Idle);
        CHECK(position().frame.op == Op::Broadcast);
      });
      ranks.expect_clean();
    });
  }

  TEST_CASE("a seed fixes everything: twenty runs of two ranks are one trace") {
    std::vector<std::string> first;
    for (int round = 0; round < 20; ++round) {
      FakeRanks ranks(2, 5);
      ranks.run([](World& world) {
        const Tensor tensor = ones(world, 8);
        const auto pair = world.new_group({1, 0}, "pair");
        for (int i = 0; i < 3; ++i) {
          world.group().issue(all_reduce(tensor)).wait();
          pair->issue(broadcast(tensor, i % 2)).wait();
          static_cast<void>(world.exchange("text"));
          CHECK(tensor.item() > 0);
        }
        world.check_order();
        world.finish();
      });
      ranks.expect_clean();
      if (round == 0) {
        first = ranks.session().trace();
        CHECK(first.size() > 100);
      }
      const std::vector<std::string> trace = ranks.session().trace();
      const auto [there, here] = std::ranges::mismatch(first, trace);
      CAPTURE(there - first.begin());
      CAPTURE((there == first.end() ? "the end" : *there));
      CAPTURE((here == trace.end() ? "the end" : *here));
      CHECK(trace == first);
    }
  }
}

}  // namespace fsdptrain::comm
