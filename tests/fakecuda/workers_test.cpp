#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "tests/fakecuda/two_ranks.h"

// Streams as threads. What the thread sanitizer makes of the mistakes is a test of its own.
namespace fsdptrain::fakecuda {

TEST_SUITE("fakecuda/workers") {
  TEST_CASE("two ranks with all their waits are silent and compute") {
    for (int round = 0; round < 10; ++round) {
      Session session(checked({.mode = Mode::Threads, .num_devices = 2}));
      CHECK(TwoRanks(Missing::Nothing).run(session));
      session.finish();
      expect_no_reports(session);
      CHECK(session.num_ops_run() == 2 * 4 * TwoRanks::kNumSteps);
    }
  }

  TEST_CASE("a host thread waits for what another host thread does") {
    Session session(checked({.mode = Mode::Threads}));
    HostSchedule& schedule = session.host_schedule(2);
    std::atomic<bool> written = false;
    std::jthread writer([&] {
      schedule.begin(0);
      written = true;
      schedule.end(0);
    });
    schedule.begin(1);
    schedule.wait([&] { return written.load(); });
    schedule.end(1);
    writer.join();
    CHECK(written);
  }

  TEST_CASE("a broken device does not stop the other one") {
    Session session(
        checked({.mode = Mode::Threads, .num_devices = 2, .faults = {.broken_op_name = "bad"}}));
    Things things;
    const cudaStream_t stream = things.stream();
    enqueue(stream, {.name = "bad"});
    CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    succeed(cudaSetDevice(1));
    void* memory = nullptr;
    succeed(cudaMalloc(&memory, 16));
    succeed(cudaFree(memory));
    session.finish();
    expect_no_reports(session);
  }

#if !defined(__SANITIZE_THREAD__)
  TEST_CASE("the clocks report a missing wait here, too") {
    for (const Missing missing : {Missing::CopyBeforeKernel, Missing::KernelBeforeGather}) {
      Session session(checked({.mode = Mode::Threads, .num_devices = 2}));
      TwoRanks(missing).run(session);
      session.finish();
      expect_reported(session, ReportKind::UnorderedAccess, {"'add_one'"});
    }
  }
#endif
}

}  // namespace fsdptrain::fakecuda
