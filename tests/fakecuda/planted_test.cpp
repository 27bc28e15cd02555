#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fakecuda/expect.h"
#include "tests/fakecuda/fakecuda.h"

// Every kind of mistake, in every order of operations, and the clean program beside it.
namespace fsdptrain::fakecuda {
namespace {

constexpr std::uint64_t kNumOrders = 12;
constexpr std::size_t kNumel = 256;
constexpr std::size_t kNbytes = kNumel * sizeof(int);

void succeed(cudaError_t error) {
  REQUIRE(std::string(cudaGetErrorName(error)) == "cudaSuccess");
}

// What a small step does: the host fills pinned memory, a copy stream brings it to the device, a
// compute stream adds one, the copy stream brings it back. Each flag takes one thing out.
struct Plan {
  bool wait_for_copy = true;
  bool record_after_copy = true;
  bool wait_for_compute = true;
  bool keep_input = true;
  bool synchronise = true;
  std::size_t num_extra = 0;
};

class Program {
 public:
  explicit Program(std::uint64_t seed) : session(checked({.seed = seed})) {
    succeed(cudaStreamCreateWithFlags(&copy_stream, cudaStreamNonBlocking));
    succeed(cudaStreamCreateWithFlags(&compute_stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&copied, &computed}) {
      succeed(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    for (int** pinned : {&input, &output}) {
      succeed(cudaMallocHost(reinterpret_cast<void**>(pinned), kNbytes));
    }
    for (int** memory : {&x, &y}) {
      succeed(cudaMalloc(reinterpret_cast<void**>(memory), kNbytes));
    }
  }

  void add_one(int* to, const int* from, std::size_t numel) const {
    succeed(enqueue(compute_stream, {.name = "add_one",
                                     .reads = {{from, numel * sizeof(int)}},
                                     .writes = {{to, kNbytes}},
                                     .run = [=] {
                                       for (std::size_t i = 0; i < kNumel; ++i) {
                                         to[i] = from[i] + 1;
                                       }
                                     }}));
  }

  void run(const Plan& plan) {
    check_host_access(input, kNbytes, Access::Write);
    std::iota(input, input + kNumel, 0);
    if (!plan.record_after_copy) {
      succeed(cudaEventRecord(copied, copy_stream));
    }
    succeed(cudaMemcpyAsync(x, input, kNbytes, cudaMemcpyHostToDevice, copy_stream));
    if (!plan.keep_input) {
      check_host_access(input, sizeof(int), Access::Write);
      input[0] = 7;
    }
    if (plan.record_after_copy) {
      succeed(cudaEventRecord(copied, copy_stream));
    }
    if (plan.wait_for_copy) {
      succeed(cudaStreamWaitEvent(compute_stream, copied, 0));
    }
    add_one(y, x, kNumel + plan.num_extra);
    succeed(cudaEventRecord(computed, compute_stream));
    if (plan.wait_for_compute) {
      succeed(cudaStreamWaitEvent(copy_stream, computed, 0));
    }
    succeed(cudaMemcpyAsync(output, y, kNbytes, cudaMemcpyDeviceToHost, copy_stream));
    if (plan.synchronise) {
      succeed(cudaStreamSynchronize(copy_stream));
    }
    check_host_access(output, kNbytes, Access::Read);
  }

  void clean_up() {
    succeed(cudaDeviceSynchronize());
    succeed(cudaFree(x));
    succeed(cudaFree(y));
    succeed(cudaFreeHost(input));
    succeed(cudaFreeHost(output));
    succeed(cudaEventDestroy(copied));
    succeed(cudaEventDestroy(computed));
    succeed(cudaStreamDestroy(copy_stream));
    succeed(cudaStreamDestroy(compute_stream));
    session.finish();
  }

  Session session;
  cudaStream_t copy_stream = nullptr;
  cudaStream_t compute_stream = nullptr;
  cudaEvent_t copied = nullptr;
  cudaEvent_t computed = nullptr;
  int* input = nullptr;
  int* output = nullptr;
  int* x = nullptr;
  int* y = nullptr;
};

template <class Body>
void in_all_orders(Body body) {
  for (std::uint64_t seed = 0; seed < kNumOrders; ++seed) {
    CAPTURE(seed);
    body(seed);
  }
}

}  // namespace

TEST_SUITE("fakecuda/planted") {
  TEST_CASE("a program with all its waits is silent and computes") {
    in_all_orders([](std::uint64_t seed) {
      Program program(seed);
      program.run({});
      CHECK(program.output[0] == 1);
      CHECK(program.output[kNumel - 1] == int{kNumel});
      program.clean_up();
      expect_no_reports(program.session);
    });
  }

  TEST_CASE("a wait that is missing between a copy and a kernel is reported") {
    in_all_orders([](std::uint64_t seed) {
      Program program(seed);
      program.run({.wait_for_copy = false});
      program.clean_up();
      const std::vector<Report> reports = program.session.reports();
      const std::string text = describe_all(reports);
      CAPTURE(text);
      CHECK(text.find("unordered access") != std::string::npos);
      CHECK(text.find("'add_one'") != std::string::npos);
      CHECK(text.find("'cudaMemcpyAsync host to device'") != std::string::npos);
      CHECK(text.find("planted_test.cpp:") != std::string::npos);
    });
  }
}

}  // namespace fsdptrain::fakecuda
