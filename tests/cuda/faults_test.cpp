#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/cuda/copies.h"
#include "tests/fakecuda/expect.h"

// Devices of the fake that run out of memory, or break, at every place of a step.
namespace fsdptrain::testing {
namespace {

constexpr std::int64_t kNumel = 500;

// Asks for memory of several sizes, on two streams and of both kinds.
void run_step(const Stream& copy) {
  const Stream& compute = gpu().compute_stream();
  std::vector<Tensor> layers;
  for (std::int64_t layer = 1; layer <= 3; ++layer) {
    layers.push_back(counted_on_gpu(kNumel * layer, 1));
  }
  copy.wait(compute);
  Tensor copied;
  {
    const StreamGuard guard(copy);
    copied = empty_on_gpu(kNumel);
    copy_async(copied, layers[0]);
  }
  compute.wait(copy);
  // Not within CHECK, which keeps what they throw.
  const bool first = holds_counted(copied, 1);
  const bool last = holds_counted(layers[2], 1);
  CHECK(first);
  CHECK(last);
}

struct Outcome {
  int num_steps = 0;
  std::string error = {};
  std::uint64_t num_mallocs = 0;
  std::uint64_t num_host_mallocs = 0;
  std::uint64_t num_ops = 0;
};

// Steps in one process: the first failure of type E is kept.
template <class E>
Outcome run_steps(int num_steps, const fakecuda::Options& options) {
  Outcome outcome;
  fakecuda::Session session(fakecuda::checked(options));
  {
    RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
    const ContextGuard bound(context);
    const Stream copy = gpu().make_stream("copy");
    for (int step = 0; step < num_steps; ++step) {
      try {
        run_step(copy);
        gpu().compute_stream().synchronize();
        copy.synchronize();
        ++outcome.num_steps;
      } catch (const E& error) {
        CHECK(outcome.error.empty());
        outcome.error = error.what();
      }
    }
    outcome.num_ops = session.num_ops_run();
    outcome.num_mallocs = session.num_mallocs();
    outcome.num_host_mallocs = session.num_host_mallocs();
  }
  session.finish();
  fakecuda::expect_no_reports(session);
  return outcome;
}

fakecuda::Options with_seed(std::uint64_t seed) {
  return {.seed = seed};
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("cuda/faults") {
  TEST_CASE("after a request for memory that failed, at any place of a step, the next step works") {
    const Outcome clean = run_steps<OutOfMemoryError>(2, {});
    REQUIRE(clean.num_steps == 2);
    REQUIRE(clean.num_mallocs >= 4);
    REQUIRE(clean.num_host_mallocs >= 3);
    for (std::uint64_t seed = 0; seed < num_orders(); ++seed) {
      for (std::uint64_t n = 1; n <= clean.num_mallocs + clean.num_host_mallocs; ++n) {
        CAPTURE(seed);
        CAPTURE(n);
        fakecuda::Options options = with_seed(seed);
        const bool is_host = n > clean.num_mallocs;
        const std::uint64_t number = is_host ? n - clean.num_mallocs : n;
        // And again after the cached blocks went back.
        (is_host ? options.faults.failing_host_mallocs : options.faults.failing_mallocs) = {
            number, number + 1};
        const Outcome outcome = run_steps<OutOfMemoryError>(3, options);
        CHECK(outcome.num_steps == 2);
        CHECK(contains(outcome.error, is_host ? "bytes more of pinned memory for cuda:0 for data"
                                              : "bytes more of cuda:0 for activation on stream "));
      }
    }
  }

  TEST_CASE("a request for memory that fails once is served by what the cache gives back") {
    const Outcome clean = run_steps<OutOfMemoryError>(2, {});
    for (std::uint64_t n = 1; n <= clean.num_mallocs; ++n) {
      CAPTURE(n);
      fakecuda::Options options = with_seed(n % num_orders());
      options.faults.failing_mallocs = {n};
      CHECK(run_steps<OutOfMemoryError>(3, options).num_steps == 3);
    }
  }

  TEST_CASE("a device that breaks at any operation is a DeviceError, and ends no process") {
    for (std::uint64_t seed = 0; seed < num_orders(); ++seed) {
      const Outcome clean = run_steps<DeviceError>(1, with_seed(seed));
      REQUIRE(clean.num_ops >= 10);
      for (std::uint64_t n = 1; n <= clean.num_ops; ++n) {
        CAPTURE(seed);
        CAPTURE(n);
        fakecuda::Options options = with_seed(seed);
        options.faults.broken_op = n;
        const Outcome outcome = run_steps<DeviceError>(1, options);
        CHECK(outcome.num_steps == 0);
        CHECK(contains(outcome.error,
                       "CUDA says cudaErrorIllegalAddress: an illegal memory access was "
                       "encountered"));
      }
    }
  }

  TEST_CASE("a device that is broken says so at every later call") {
    for (std::uint64_t seed = 0; seed < num_orders(); ++seed) {
      CAPTURE(seed);
      fakecuda::Options options = with_seed(seed);
      options.faults.broken_op = 2;
      fakecuda::Session session(fakecuda::checked(options));
      {
        RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
        const ContextGuard bound(context);
        const Stream compute = gpu().compute_stream();
        CHECK_THROWS_AS(run_step(gpu().make_stream("copy")), DeviceError);
        CHECK_THROWS_WITH_AS(compute.synchronize(),
                             doctest::Contains("cudaStreamSynchronize: CUDA says "
                                               "cudaErrorIllegalAddress"),
                             DeviceError);
        CHECK_THROWS_AS(gpu().make_stream("late"), DeviceError);
        CHECK_THROWS_AS(empty_on_gpu(1 << 20), DeviceError);
        CHECK_THROWS_AS(RankContext().device(kGpu), DeviceError);
      }
      session.finish();
      fakecuda::expect_no_reports(session);
    }
  }
}

}  // namespace fsdptrain::testing
