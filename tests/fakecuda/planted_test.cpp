#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fakecuda/fixture.h"

// Every kind of mistake in every order of operations, and the clean program beside it.
namespace fsdptrain::fakecuda {
namespace {

constexpr std::size_t kNumel = 256;
constexpr std::size_t kNbytes = kNumel * sizeof(int);

// What a small step may do wrong.
struct Plan {
  bool copies_input = true;
  bool records_after_copy = true;
  bool waits_for_copy = true;
  bool waits_for_kernel = true;
  bool keeps_input = true;
  bool synchronises = true;
  std::size_t num_read_beyond = 0;
  std::size_t num_written_beyond = 0;
};

// The host fills pinned memory, a copy stream brings it to the device, a compute stream adds one,
// the copy stream brings it back, and the host reads it.
struct Step {
  explicit Step(std::uint64_t seed) : session(checked({.seed = seed})) {}

  void add_one(const Plan& plan) {
    succeed(enqueue(compute, {.name = "add_one",
                              .reads = {range(x, kNumel + plan.num_read_beyond)},
                              .writes = {range(y, kNumel + plan.num_written_beyond)},
                              .run = [to = y, from = x] {
                                std::transform(from, from + kNumel, to,
                                               [](int value) { return value + 1; });
                              }}));
  }

  void run(const Plan& plan) {
    check_host_access(input, kNbytes, Access::Write);
    std::iota(input, input + kNumel, 0);
    if (!plan.records_after_copy) {
      succeed(cudaEventRecord(copied, copy));
    }
    if (plan.copies_input) {
      succeed(cudaMemcpyAsync(x, input, kNbytes, cudaMemcpyHostToDevice, copy));
    }
    if (!plan.keeps_input) {
      check_host_access(input, sizeof(int), Access::Write);
    }
    if (plan.records_after_copy) {
      succeed(cudaEventRecord(copied, copy));
    }
    if (plan.waits_for_copy) {
      succeed(cudaStreamWaitEvent(compute, copied, 0));
    }
    add_one(plan);
    succeed(cudaEventRecord(computed, compute));
    if (plan.waits_for_kernel) {
      succeed(cudaStreamWaitEvent(copy, computed, 0));
    }
    succeed(cudaMemcpyAsync(output, y, kNbytes, cudaMemcpyDeviceToHost, copy));
    if (plan.synchronises) {
      succeed(cudaStreamSynchronize(copy));
    }
    check_host_access(output, kNbytes, Access::Read);
  }

  Session session;
  Things things;
  cudaStream_t copy = things.stream();
  cudaStream_t compute = things.stream();
  cudaEvent_t copied = things.event();
  cudaEvent_t computed = things.event();
  int* input = things.pinned<int>(kNumel);
  int* output = things.pinned<int>(kNumel);
  int* x = things.device<int>(kNumel);
  int* y = things.device<int>(kNumel);
};

void expect_planted(const Plan& plan, const std::vector<std::string_view>& texts) {
  in_all_orders([&](std::uint64_t seed) {
    Step step(seed);
    step.run(plan);
    step.things.destroy();
    step.session.finish();
    expect_among_reports(step.session, texts);
  });
}

}  // namespace

TEST_SUITE("fakecuda/planted") {
  TEST_CASE("a program with all its waits is silent and computes") {
    in_all_orders([](std::uint64_t seed) {
      Step step(seed);
      for (int round = 0; round < 3; ++round) {
        step.run({});
        CHECK(step.output[0] == 1);
        CHECK(step.output[kNumel - 1] == int{kNumel});
      }
      step.things.destroy();
      step.session.finish();
      expect_no_reports(step.session);
    });
  }

  TEST_CASE("a wait that is missing between a copy and a kernel is reported") {
    expect_planted({.waits_for_copy = false},
                   {"unordered access", "'add_one' (op 4, device 0, stream 1)",
                    "'cudaMemcpyAsync host to device' (op 2, device 0, stream 0)",
                    "cudaMalloc #1 (1024 bytes, device 0)", "planted_test.cpp:"});
  }

  TEST_CASE("an event that is recorded before the copy orders nothing") {
    expect_planted({.records_after_copy = false},
                   {"unordered access", "'add_one'", "'cudaMemcpyAsync host to device'"});
  }

  TEST_CASE("a wait that is missing between a kernel and the copy back is reported") {
    expect_planted(
        {.waits_for_kernel = false},
        {"unordered access", "'add_one'", "'cudaMemcpyAsync device to host'", "cudaMalloc #2"});
  }

  TEST_CASE("pinned memory that is overwritten before its copy ended is reported") {
    expect_planted({.keeps_input = false},
                   {"unordered access", "'host write' (the host)",
                    "'cudaMemcpyAsync host to device'", "byte 0 of cudaMallocHost #1"});
  }

  TEST_CASE("a result that is read before anybody waited for its copy is reported") {
    expect_planted({.synchronises = false},
                   {"unordered access", "'host read' (the host)",
                    "'cudaMemcpyAsync device to host'", "cudaMallocHost #2"});
  }

  TEST_CASE("a read of memory that nobody wrote is reported") {
    expect_planted({.copies_input = false},
                   {"uninitialised read", "'add_one'", "byte 0 of cudaMalloc #1", "allocated at"});
  }

  TEST_CASE("a read of one element too many is reported") {
    expect_planted({.num_read_beyond = 1},
                   {"out of bounds: read by 'add_one'", "1028 bytes from byte 0 of cudaMalloc #1"});
  }

  TEST_CASE("a write of one element too many is reported") {
    expect_planted({.num_written_beyond = 1}, {"out of bounds: write by 'add_one'",
                                               "1028 bytes from byte 0 of cudaMalloc #2"});
  }

  TEST_CASE("an operation on freed memory is reported") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed}));
      Things things;
      const cudaStream_t stream = things.stream();
      float* x = nullptr;
      succeed(cudaMalloc(reinterpret_cast<void**>(&x), kNbytes));
      succeed(cudaFree(x));
      launch(stream, "late", {}, {range(x + 3, 1)});
      things.destroy();
      expect_reported(session, ReportKind::UseAfterFree,
                      {"'late'", "byte 12 of cudaMalloc #1", "freed at"});
    });
  }

  TEST_CASE("memory that is freed while an operation may use it is reported") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed}));
      Things things;
      const cudaStream_t stream = things.stream();
      float* x = nullptr;
      succeed(cudaMalloc(reinterpret_cast<void**>(&x), kNbytes));
      launch(stream, "user", {}, {range(x, 1)});
      succeed(cudaFree(x));
      things.destroy();
      expect_reported(session, ReportKind::FreeWhileInUse,
                      {"cudaFree of cudaMalloc #1", "'user'", "the host does not wait for it"});
    });
  }

  TEST_CASE("pinned memory that is freed before its copy ended is reported") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed}));
      Things things;
      const cudaStream_t stream = things.stream();
      float* x = things.device(kNumel);
      float* pinned = nullptr;
      succeed(cudaMallocHost(reinterpret_cast<void**>(&pinned), kNbytes));
      succeed(cudaMemcpyAsync(x, pinned, kNbytes, cudaMemcpyHostToDevice, stream));
      succeed(cudaFreeHost(pinned));
      things.destroy();
      expect_among_reports(session, {"free while in use", "cudaFreeHost", "'cudaMemcpyAsync"});
    });
  }

  TEST_CASE("memory that is freed twice is reported") {
    Session session(checked({}));
    float* x = nullptr;
    succeed(cudaMalloc(reinterpret_cast<void**>(&x), kNbytes));
    succeed(cudaFree(x));
    CHECK(cudaFree(x) == cudaErrorInvalidValue);
    expect_reported(session, ReportKind::DoubleFree, {"cudaMalloc #1"});
  }

  TEST_CASE("what is left at the end of a session is reported one by one") {
    Session session(checked({}));
    Things things;
    things.stream();
    things.event();
    things.device(kNumel);
    things.pinned(kNumel);
    session.finish();
    CHECK(session.reports().size() == 4);
    expect_reported(session, ReportKind::Leak, {"cudaMalloc #1 (1024 bytes, device 0)"});
    expect_reported(session, ReportKind::Leak, {"cudaMallocHost #1"});
    expect_reported(session, ReportKind::Leak, {"stream 0"});
    expect_reported(session, ReportKind::Leak, {"event 0"});
  }

  TEST_CASE("reports that nobody looked at fail the test") {
    std::string unseen;
    {
      Session session({.unseen = [&](const std::string& text) { unseen = text; }});
      Things things;
      things.event();
    }
    CHECK(unseen.find("leak: event 0") != std::string::npos);
  }
}

}  // namespace fsdptrain::fakecuda
