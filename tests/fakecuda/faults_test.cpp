#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "tests/fakecuda/child.h"
#include "tests/fakecuda/fixture.h"

// Planned failures, and the one that ends the process.
namespace fsdptrain::fakecuda {
namespace {

constexpr std::size_t kNumel = 64;

}  // namespace

TEST_SUITE("fakecuda/faults") {
  TEST_CASE("the n-th allocation fails, and the next one does not") {
    for (std::uint64_t failing = 1; failing <= 3; ++failing) {
      CAPTURE(failing);
      Session session(
          checked({.faults = {.failing_mallocs = {failing}, .failing_host_mallocs = {failing}}}));
      for (std::uint64_t call = 1; call <= 3; ++call) {
        const cudaError_t expected = call == failing ? cudaErrorMemoryAllocation : cudaSuccess;
        void* memory = nullptr;
        CHECK(cudaMalloc(&memory, 16) == expected);
        CHECK((memory == nullptr) == (call == failing));
        CHECK(cudaPeekAtLastError() == expected);
        CHECK(cudaGetLastError() == expected);
        CHECK(cudaGetLastError() == cudaSuccess);
        succeed(cudaFree(memory));
        CHECK(cudaMallocHost(&memory, 16) == expected);
        succeed(cudaFreeHost(memory));
        cudaGetLastError();
      }
      CHECK(session.num_mallocs() == 3);
      CHECK(session.num_host_mallocs() == 3);
      expect_no_reports(session);
    }
  }

  TEST_CASE("a device has only its memory") {
    Session session(checked({.num_devices = 2, .device_memory = 1000}));
    void* first = nullptr;
    void* second = nullptr;
    succeed(cudaMalloc(&first, 600));
    CHECK(cudaMalloc(&second, 401) == cudaErrorMemoryAllocation);
    succeed(cudaMalloc(&second, 400));
    CHECK(session.device_bytes(0) == 1000);
    std::size_t free_bytes = 1;
    std::size_t total_bytes = 0;
    succeed(cudaMemGetInfo(&free_bytes, &total_bytes));
    CHECK(free_bytes == 0);
    CHECK(total_bytes == 1000);
    succeed(cudaFree(first));
    succeed(cudaFree(second));
    // A long session does not run out of what was freed.
    for (int round = 0; round < 100; ++round) {
      succeed(cudaMalloc(&first, 10));
      succeed(cudaFree(first));
    }
    succeed(cudaSetDevice(1));
    succeed(cudaMalloc(&first, 1000));
    succeed(cudaFree(first));
  }

  TEST_CASE("an error of an operation is returned by all later calls of its device") {
    in_all_orders([](std::uint64_t seed) {
      for (const bool by_name : {true, false}) {
        Options options{.seed = seed, .num_devices = 2};
        if (by_name) {
          options.faults.broken_op_name = "second";
        } else {
          options.faults.broken_op = 2;
        }
        Session session(checked(std::move(options)));
        Things things;
        const cudaStream_t stream = things.stream();
        float* x = things.device(kNumel);
        std::string ran;
        for (const char* name : {"first", "second", "third"}) {
          // A random order may have broken it during the loop.
          enqueue(stream, {.name = name, .run = [&ran, name] { ran += name; }});
        }
        CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
        CHECK(ran == "first");
        CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
        CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
        CHECK(cudaFree(x) == cudaErrorIllegalAddress);
        CHECK(enqueue(stream, {.name = "later"}) == cudaErrorIllegalAddress);
        void* memory = nullptr;
        CHECK(cudaMalloc(&memory, 16) == cudaErrorIllegalAddress);
        succeed(cudaSetDevice(1));
        succeed(cudaMalloc(&memory, 16));
        succeed(cudaFree(memory));
        session.finish();
        expect_no_reports(session);
      }
    });
  }

  TEST_CASE("a delayed stream runs when nothing else can") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed, .faults = {.delayed_streams = {0}}}));
      Things things;
      const cudaStream_t delayed = things.stream();
      const cudaStream_t other = things.stream();
      std::string order;
      succeed(enqueue(delayed, {.name = "a", .run = [&] { order += 'a'; }}));
      succeed(enqueue(other, {.name = "b", .run = [&] { order += 'b'; }}));
      succeed(enqueue(other, {.name = "c", .run = [&] { order += 'c'; }}));
      succeed(cudaStreamSynchronize(delayed));
      CHECK(order == "bca");
      things.destroy();
      session.finish();
      expect_no_reports(session);
    });
  }

  TEST_CASE("a host access to device memory is reported by name") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed}));
      Things things;
      const cudaStream_t stream = things.stream();
      float* x = things.device(kNumel);
      name_memory(x, "weights");
      launch(stream, "writer", {}, {range(x, kNumel)});
      succeed(cudaStreamSynchronize(stream));
      CHECK_FALSE(check_host_access(x + 2, sizeof(float), Access::Read));
      things.destroy();
      expect_reported(session, ReportKind::HostAccess,
                      {"host read of byte 8 of cudaMalloc #1 'weights' (256 bytes, device 0)",
                       "faults_test.cpp:"});
    });
  }

  TEST_CASE("a raw host access to device memory ends the process and names it") {
    for (const bool is_write : {false, true}) {
      const Ending ending = run_in_child([&] {
        const Session session;
        Things things;
        auto* x = things.device<volatile int>(kNumel);
        succeed(enqueue(
            things.stream(),
            {.name = "fill", .writes = {{const_cast<int*>(x), 16}}, .run = [x] { x[0] = 1; }}));
        succeed(cudaDeviceSynchronize());
        if (is_write) {
          x[3] = 2;
        } else {
          const int value = x[3];
          static_cast<void>(value);
        }
      });
      CHECK(ending.status == kHostAccessExit);
      CAPTURE(ending.text);
      CHECK(ending.text.find(is_write ? "host write of device memory: byte 12 of cudaMalloc #1"
                                      : "host read of device memory: byte 12 of cudaMalloc #1") !=
            std::string::npos);
      CHECK(ending.text.find("faults_test.cpp:") != std::string::npos);
    }
  }

  TEST_CASE("an operation that touches what it does not name ends the process") {
    const Ending ending = run_in_child([] {
      const Session session;
      Things things;
      auto* named = things.device<char>(10000);
      auto* other = things.device<char>(10000);
      succeed(enqueue(things.stream(), {.name = "liar", .writes = {{named, 10000}}, .run = [other] {
                                          other[7] = 1;
                                        }}));
      cudaDeviceSynchronize();
    });
    CHECK(ending.status == kHostAccessExit);
    CAPTURE(ending.text);
    CHECK(ending.text.find("'liar' write of device memory: byte 7 of cudaMalloc #2") !=
          std::string::npos);
  }

  TEST_CASE("a host function that touches device memory ends the process") {
    const Ending ending = run_in_child([] {
      const Session session;
      Things things;
      succeed(cudaLaunchHostFunc(
          things.stream(), [](void* memory) { static_cast<char*>(memory)[5] = 1; },
          things.device<char>(16)));
      cudaDeviceSynchronize();
    });
    CHECK(ending.status == kHostAccessExit);
    CHECK(ending.text.find("'host function' write of device memory: byte 5 of cudaMalloc #1") !=
          std::string::npos);
  }

  TEST_CASE("a raw host access to freed pinned memory ends the process and names it") {
    const Ending ending = run_in_child([] {
      const Session session;
      void* memory = nullptr;
      succeed(cudaMallocHost(&memory, 16));
      succeed(cudaFreeHost(memory));
      static_cast<volatile char*>(memory)[4] = 1;
    });
    CHECK(ending.status == kHostAccessExit);
    CHECK(ending.text.find("host write of pinned memory: byte 4 of cudaMallocHost #1") !=
          std::string::npos);
    CHECK(ending.text.find("which was freed") != std::string::npos);
  }
}

}  // namespace fsdptrain::fakecuda
