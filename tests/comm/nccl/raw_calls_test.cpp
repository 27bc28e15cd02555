#include <algorithm>
#include <string>

#include <doctest/doctest.h>
#include <nccl.h>

#include "comm/process_group.h"
#include "tests/comm/nccl/fake_ranks.h"

// Mistakes in calls of NCCL itself, which a program that keeps to comm does not make.
namespace fsdptrain::comm {
namespace {

using fakecuda::ReportKind;
using testing::FakeRanks;
using testing::in_all_orders;
using testing::ones;

bool is_reported(FakeRanks& ranks, const std::string& text) {
  return std::ranges::any_of(ranks.session().reports(), [&](const fakecuda::Report& report) {
    return report.kind == ReportKind::InvalidUse &&
           describe(report).find(text) != std::string::npos;
  });
}

// Of the calling rank alone.
ncclComm_t lonely_communicator() {
  ncclUniqueId id{};
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = "lonely";
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
  ncclResult_t state = ncclInProgress;
  CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  CHECK(state == ncclSuccess);
  return comm;
}

}  // namespace

TEST_SUITE("comm/nccl/raw_calls") {
  TEST_CASE("an abort beside a communicator that has work on the device is reported") {
    in_all_orders([](std::uint64_t seed) {
      FakeRanks ranks(2, seed);
      ranks.run([](World& world) {
        const Tensor whole = Tensor::empty({16}, DType::Float32, world.device());
        if (world.rank() == 0) {
          Work gather = world.group().issue(all_gather(whole, ones(world, 8)));
          CHECK(ncclCommAbort(lonely_communicator()) == ncclSuccess);
          world.control().issue(barrier()).wait();
          gather.wait();
          world.finish();
          CHECK(ncclCommAbort(lonely_communicator()) == ncclSuccess);
        } else {
          world.control().issue(barrier()).wait();
          world.group().issue(all_gather(whole, ones(world, 8))).wait();
        }
      });
      CHECK(is_reported(ranks,
                        "ncclCommAbort waits for what communicator 'world/gather' has under "
                        "way on the same device"));
      CHECK(ranks.session().reports().size() == 1);
      ranks.ignore_rest();
    });
  }

  TEST_CASE("memory that is freed while a communicator knows it is reported") {
    FakeRanks ranks(1, 0);
    ranks.run([](World& world) {
      const Tensor block = world.group().allocate({8}, DType::Float32);
      CHECK(ncclMemFree(block.view().data) == ncclSuccess);
    });
    CHECK(is_reported(ranks, "ncclMemFree of memory that is registered with communicator 'world/"));
    ranks.ignore_rest();
  }
}

}  // namespace fsdptrain::comm
