#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fakecuda/fixture.h"

// Operations that tell of each access instead of naming ranges.
namespace fsdptrain::fakecuda {
namespace {

constexpr std::size_t kNumel = 100;

template <class T>
T load(const T* from) {
  return on_access(from, sizeof(T), false) ? *from : T{};
}

template <class T>
void store(T* to, T value) {
  if (on_access(to, sizeof(T), true)) {
    *to = value;
  }
}

void fill(cudaStream_t stream, int* x, std::size_t begin, std::size_t end) {
  succeed(enqueue(stream, {.name = "fill", .run = [=] {
                             for (std::size_t i = begin; i < end; ++i) {
                               store(x + i, 1);
                             }
                           }}));
}

void double_all(cudaStream_t stream, int* to, const int* from, std::size_t numel) {
  succeed(enqueue(stream, {.name = "double_all", .run = [=] {
                             for (std::size_t i = 0; i < numel; ++i) {
                               store(to + i, 2 * load(from + i));
                             }
                           }}));
}

struct Kernels {
  explicit Kernels(std::uint64_t seed) : session(checked({.seed = seed})) {}

  void expect(ReportKind kind, const std::vector<std::string_view>& texts) {
    things.destroy();
    expect_reported(session, kind, texts);
  }

  Session session;
  Things things;
  cudaStream_t a = things.stream();
  cudaStream_t b = things.stream();
  int* x = things.device<int>(kNumel);
  int* y = things.device<int>(kNumel);
};

}  // namespace

TEST_SUITE("fakecuda/access") {
  TEST_CASE("accesses in order and within bounds are silent") {
    in_all_orders([](std::uint64_t seed) {
      Kernels kernels(seed);
      fill(kernels.a, kernels.x, 0, kNumel);
      double_all(kernels.a, kernels.y, kernels.x, kNumel);
      double_all(kernels.a, kernels.x, kernels.y, kNumel);
      std::vector<int> host(kNumel);
      succeed(cudaMemcpyAsync(host.data(), kernels.x, kNumel * sizeof(int), cudaMemcpyDeviceToHost,
                              kernels.a));
      CHECK(host == std::vector<int>(kNumel, 4));
      kernels.things.destroy();
      kernels.session.finish();
      expect_no_reports(kernels.session);
    });
  }

  TEST_CASE("an access of one element too many is reported and does not happen") {
    in_all_orders([](std::uint64_t seed) {
      Kernels kernels(seed);
      fill(kernels.a, kernels.x, 0, kNumel + 1);
      kernels.expect(ReportKind::OutOfBounds,
                     {"write by 'fill'", "4 bytes from byte 400 of cudaMalloc #1 (400 bytes"});
    });
  }

  TEST_CASE("an access before the first element is reported") {
    in_all_orders([](std::uint64_t seed) {
      Kernels kernels(seed);
      fill(kernels.a, kernels.y - 1, 0, 2);
      kernels.expect(ReportKind::OutOfBounds, {"4 bytes from byte -4 of cudaMalloc #2"});
    });
  }

  TEST_CASE("the one element that nobody wrote is reported") {
    in_all_orders([](std::uint64_t seed) {
      Kernels kernels(seed);
      fill(kernels.a, kernels.x, 0, 50);
      fill(kernels.a, kernels.x, 51, kNumel);
      double_all(kernels.a, kernels.y, kernels.x, kNumel);
      kernels.expect(ReportKind::UninitialisedRead, {"'double_all'", "byte 200 of cudaMalloc #1"});
    });
  }

  TEST_CASE("the one element that two streams touch is reported") {
    in_all_orders([](std::uint64_t seed) {
      Kernels kernels(seed);
      fill(kernels.a, kernels.x, 0, 51);
      fill(kernels.b, kernels.x, 50, kNumel);
      kernels.expect(ReportKind::UnorderedAccess, {"byte 200 of cudaMalloc #1"});
    });
  }

  TEST_CASE("threads that work for an operation are the operation") {
    Kernels kernels(0);
    succeed(enqueue(kernels.a, {.name = "fill", .run = [x = kernels.x] {
                                  std::vector<std::jthread> threads;
                                  for (std::size_t i = 0; i < kNumel; ++i) {
                                    threads.emplace_back([=] { store(x + i, 1); });
                                  }
                                }}));
    fill(kernels.b, kernels.x, 99, kNumel);
    kernels.expect(ReportKind::UnorderedAccess, {"'fill' (op 1", "byte 396 of cudaMalloc #1"});
  }

  TEST_CASE("an access outside of operations is nobody's") {
    Kernels kernels(0);
    CHECK(on_access(kernels.x + kNumel, 4, true));
    kernels.things.destroy();
    expect_no_reports(kernels.session);
  }
}

}  // namespace fsdptrain::fakecuda
