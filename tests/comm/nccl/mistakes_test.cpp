#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "comm/collective/collective_record.h"
#include "comm/error.h"
#include "comm/flight/reader.h"
#include "comm/process_group.h"
#include "runtime/base/rank_context.h"
#include "tests/comm/nccl/fake_ranks.h"

// Each mistake that real streams and the real NCCL would answer with wrong numbers or a hang is
// reported by name, in every order of operations.
namespace fsdptrain::comm {
namespace {

using fakecuda::ReportKind;
using testing::FakeRanks;
using testing::in_all_orders;
using testing::is_a;
using testing::ones;
using testing::touch;

// Some report of this kind has all of these texts.
void expect_reported(FakeRanks& ranks, ReportKind kind, const std::vector<std::string>& texts) {
  bool found = false;
  std::string all;
  for (const fakecuda::Report& report : ranks.session().reports()) {
    const std::string text = describe(report);
    all += text + "\n";
    bool has_all = report.kind == kind;
    for (const std::string& part : texts) {
      has_all = has_all && text.find(part) != std::string::npos;
    }
    found = found || has_all;
  }
  CHECK_MESSAGE(found, all);
}

std::size_t num_reports(FakeRanks& ranks, ReportKind kind) {
  return static_cast<std::size_t>(
      std::ranges::count(ranks.session().reports(), kind, &fakecuda::Report::kind));
}

void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  CAPTURE(text);
  for (const std::string& part : parts) {
    CHECK(text.find(part) != std::string::npos);
  }
}

}  // namespace

TEST_SUITE("comm/nccl/mistakes") {
  TEST_CASE("a tensor that another stream computes is not ready for the collective") {
    in_all_orders([](std::uint64_t seed) {
      for (const bool waits : {true, false}) {
        FakeRanks ranks(2, seed);
        ranks.run([&](World& world) {
          DeviceContext& device = current_context().device(world.device());
          const Stream side = device.make_stream("side");
          const Tensor tensor = ones(world, 64);
          side.wait(device.compute_stream());
          {
            const StreamGuard guard(side);
            touch("compute on the side", tensor);
          }
          if (waits) {
            device.compute_stream().wait(side);
          }
          world.group().issue(all_reduce(tensor)).wait();
        });
        if (waits) {
          ranks.expect_clean();
        } else {
          expect_reported(ranks, ReportKind::UnorderedAccess,
                          {"compute on the side", "ncclAllReduce"});
        }
      }
    });
  }

  TEST_CASE("what is gathered cannot be used before the wait") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        const Tensor whole = Tensor::empty({64}, DType::Float32, world.device());
        const Tensor part = ones(world, 32);
        const Tensor copy = Tensor::empty({64}, DType::Float32, world.device());
        Work work = world.group().issue(all_gather(whole, part));
        touch("early use", copy, whole);
        work.wait();
      });
      expect_reported(ranks, ReportKind::UnorderedAccess, {"early use", "ncclAllGather"});
    });
  }

  TEST_CASE("what is given cannot be overwritten before the wait") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        const Tensor whole = Tensor::empty({64}, DType::Float32, world.device());
        const Tensor part = ones(world, 32);
        Work work = world.group().issue(all_gather(whole, part));
        touch("early write", part);
        work.wait();
      });
      expect_reported(ranks, ReportKind::UnorderedAccess, {"early write", "ncclAllGather"});
    });
  }

  TEST_CASE("a wait on one stream orders nothing on another") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        const Stream side = current_context().device(world.device()).make_stream("side");
        const Tensor tensor = ones(world, 64);
        Work work = world.group().issue(all_reduce(tensor));
        {
          const StreamGuard guard(side);
          work.wait();
        }
        touch("use on the wrong stream", tensor);
      });
      expect_reported(ranks, ReportKind::UnorderedAccess,
                      {"use on the wrong stream", "ncclAllReduce"});
    });
  }

  TEST_CASE("memory of a tensor that is dropped goes to nobody before the collective has ended") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        const Stream side = current_context().device(world.device()).make_stream("side");
        for (int round = 0; round < 3; ++round) {
          {
            const Tensor whole = Tensor::empty({64}, DType::Float32, world.device());
            Work work = world.group().issue(all_gather(whole, ones(world, 32)));
            // The compute stream itself is not told of the end.
            const StreamGuard guard(side);
            work.wait();
          }
          touch("next user", Tensor::empty({64}, DType::Float32, world.device()));
          touch("next user", Tensor::empty({32}, DType::Float32, world.device()));
        }
        current_context().device(world.device()).compute_stream().synchronize();
      });
      ranks.expect_clean();
    });
  }

  TEST_CASE("memory of the user's own that is freed under a collective is reported") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        void* memory = nullptr;
        CHECK(cudaMalloc(&memory, 256) == cudaSuccess);
        const auto storage = Storage::placed(world.device(), 256);
        storage->restore(static_cast<std::byte*>(memory));
        const Tensor tensor =
            Tensor::over(storage, DType::Float32, {64}, Strides::contiguous({64}), 0);
        touch("fill", tensor);
        world.group().issue(all_reduce(tensor)).wait();
        CHECK(cudaFree(memory) == cudaSuccess);
      });
      expect_reported(ranks, ReportKind::FreeWhileInUse, {"ncclAllReduce"});
    });
  }

  TEST_CASE("two communicators in another order on one rank are named, and by check_order too") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(3, seed);
      const auto errors = ranks.try_run([](World& world) {
        const Tensor whole = Tensor::empty({96}, DType::Float32, world.device());
        const Tensor part = ones(world, 32);
        const Tensor sum = ones(world, 8);
        const Operation first = all_gather(whole, part, {.group = 1});
        const Operation second = all_reduce(sum, {}, {.group = 2});
        const bool is_odd = world.rank() == 2;
        Work one = world.group().issue(is_odd ? second : first);
        Work two = world.group().issue(is_odd ? first : second);
        one.wait();
        two.wait();
        world.check_order();
      });
      // The first to end tells the others.
      CHECK(std::ranges::any_of(errors, is_a<MismatchError>));
      for (const auto& error : errors) {
        CHECK(is_a<CommError>(error));
        expect_contains(text_of(error),
                        {"rank 2 has not issued what rank 0 has", "operation 1 is", "all_reduce",
                         "group 2", "on rank 2", "all_gather", "group 1", "on rank 0"});
      }
      expect_reported(ranks, ReportKind::CollectiveMismatch,
                      {"the order of two communicators", "'world/gather'", "'world/reduce'"});
    });
  }

  TEST_CASE("a group of its own does not hide the order of a rank in the group of all") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(3, seed);
      const auto errors = ranks.try_run([](World& world) {
        const bool is_odd = world.rank() == 2;
        const auto alone = is_odd ? world.new_group({2}, "alone") : nullptr;
        world.check_order();
        world.group().issue(all_reduce(ones(world, 8), {}, {.group = is_odd ? 6U : 5U})).wait();
        world.check_order();
      });
      CHECK(std::ranges::any_of(errors, is_a<MismatchError>));
      for (const auto& error : errors) {
        expect_contains(text_of(error),
                        {"rank 2 has not issued what rank 0 has", "operation 1 of the group of all",
                         "group 6", "on rank 2", "group 5", "on rank 0"});
      }
      ranks.ignore_rest();
    });
  }

  TEST_CASE("ranks that issue the same have one order, whatever groups they are in") {
    FakeRanks ranks(4, 3);
    ranks.run([](World& world) {
      const int other = world.rank() ^ 1;
      const auto pair =
          world.new_group({std::min(world.rank(), other), std::max(world.rank(), other)}, "pair");
      pair->issue(all_reduce(ones(world, 4))).wait();
      world.check_order();
      if (world.rank() < 2) {
        const auto few = world.new_group({0, 1}, "few");
        few->issue(all_reduce(ones(world, 4))).wait();
      }
      world.check_order();
    });
    ranks.expect_clean();
  }

  TEST_CASE("counts, operations and dtypes that differ are named by the fake") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        const Tensor sum = ones(world, 8 + world.rank());
        world.group().issue(all_reduce(sum)).wait();
        const Tensor other = ones(world, 16);
        world.group()
            .issue(world.rank() == 0 ? all_reduce(other, {ReduceOp::Max}) : all_reduce(other))
            .wait();
        const Tensor half = ones(world, 8);
        world.group().issue(world.rank() == 0 ? broadcast(half, 0) : broadcast(half, 1)).wait();
      });
      expect_reported(ranks, ReportKind::CollectiveMismatch,
                      {"'world/reduce'", "ncclAllReduce of 8", "ncclAllReduce of 9"});
      expect_reported(ranks, ReportKind::CollectiveMismatch, {"max", "sum"});
      expect_reported(ranks, ReportKind::CollectiveMismatch, {"root 0", "root 1"});
    });
  }

  TEST_CASE("in the checking mode both sides are named before anything is launched") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed, {.checks = true});
      const auto errors = ranks.try_run([](World& world) {
        world.group().issue(all_reduce(ones(world, 8 + world.rank()))).wait();
      });
      for (const auto& error : errors) {
        CHECK(is_a<CommError>(error));
        expect_contains(text_of(error), {"all_reduce", "shape: [8] on rank 0, [9] on rank 1",
                                         "called at tests/comm/nccl/mistakes_test.cpp"});
      }
      CHECK(ranks.session().reports().size() == num_reports(ranks, ReportKind::FreeWhileInUse));
    });
  }

  TEST_CASE("the checking mode compares what each pair of ranks gives and takes in an all_to_all") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed, {.checks = true});
      const auto errors = ranks.try_run([](World& world) {
        // Rank 0 wants two elements of rank 1, which gives three.
        const Counts gives = world.rank() == 0 ? Counts{1, 4} : Counts{3, 1};
        const Counts takes = world.rank() == 0 ? Counts{1, 2} : Counts{4, 1};
        const Tensor output = ones(world, takes[0] + takes[1]);
        const Operation operation =
            all_to_all(output, takes, ones(world, gives[0] + gives[1]), gives);
        world.group().issue(operation).wait();
      });
      for (const auto& error : errors) {
        CHECK(is_a<CommError>(error));
        expect_contains(text_of(error), {"all_to_all", "count: 2 on rank 0, 3 on rank 1",
                                         "called at tests/comm/nccl/mistakes_test.cpp"});
      }
      CHECK(num_reports(ranks, ReportKind::CollectiveMismatch) == 0);
      ranks.ignore_rest();
    });
  }

  TEST_CASE("the checking mode compares sends and receives, alone and of a batch") {
    in_all_orders([](std::uint64_t seed) {
      for (const bool is_batch : {false, true}) {
        FakeRanks ranks(3, seed, {.checks = true});
        const auto errors = ranks.try_run([&](World& world) {
          if (world.rank() == 2) {
            world.group().issue(barrier()).wait();
            world.finish();
            return;
          }
          const int other = 1 - world.rank();
          const Tensor to = ones(world, 4 + world.rank());
          const Tensor from = ones(world, 4);
          if (is_batch) {
            world.group().batch({send(to, other), recv(from, other)}).wait();
          } else {
            const Operation operation = world.rank() == 0 ? recv(from, 1) : send(to, 0);
            world.group().issue(operation).wait();
          }
        });
        for (const auto& error : errors) {
          CHECK(is_a<CommError>(error));
          expect_contains(text_of(error), {"send", "recv", "shape: [4] on rank 0, [5] on rank 1",
                                           "called at tests/comm/nccl/mistakes_test.cpp"});
        }
        CHECK(num_reports(ranks, ReportKind::CollectiveMismatch) == 0);
        ranks.ignore_rest();
      }
    });
  }

  TEST_CASE("a rank that never arrives is a hang, with what each rank did last") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      const auto errors = ranks.try_run([](World& world) {
        const Tensor tensor = ones(world, 8);
        world.group().issue(all_reduce(tensor)).wait();
        if (world.rank() == 0) {
          world.group().issue(broadcast(tensor, 0)).wait();
        } else {
          // It waits for what rank 0 never says.
          world.control().issue(barrier()).wait();
        }
        world.finish();
      });
      // The rank that hears of it first tells the other.
      CHECK(std::ranges::any_of(errors, is_a<fakecuda::HangError>));
      for (const auto& error : errors) {
        CHECK((is_a<fakecuda::HangError>(error) || is_a<PeerError>(error)));
        if (is_a<PeerError>(error)) {
          // The first line of it.
          continue;
        }
        expect_contains(text_of(error), {"ncclBroadcast #0 of communicator 'world/gather'",
                                         "waits for rank 1", "rank 0 is in", "rank 1 is in"});
      }
      expect_reported(ranks, ReportKind::Hang,
                      {"ncclBroadcast #0 of communicator 'world/gather'", "waits for rank 1",
                       "rank 0 is in", "rank 1 is in"});
      ranks.ignore_rest();
    });
  }
}

}  // namespace fsdptrain::comm
