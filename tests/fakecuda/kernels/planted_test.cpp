#include <cstdint>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "tests/cuda/kernels/values.h"
#include "tests/fakecuda/kernels/device_run.h"

// Mistakes in launches, each found by what the kernel touches when it runs.
namespace fsdptrain::fakecuda {
namespace {

constexpr std::int64_t kNumel = 300;

View floats(std::byte* data, std::int64_t numel, std::int64_t stride = 1) {
  View view;
  view.data = data;
  view.dims = 1;
  view.sizes[0] = numel;
  view.strides[0] = stride;
  return view;
}

std::vector<std::byte> some_bytes() {
  const auto values = testing::some_values<float>(kNumel, 1);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// What is reported of body(run, x, y), x being initialised memory of kNumel floats and y not.
template <class Body>
void expect_in_all_orders(ReportKind kind, const std::vector<std::string_view>& texts, Body body) {
  RankContext context;
  const ContextGuard guard(context);
  for (std::uint64_t seed = 0; seed < kNumOrders; ++seed) {
    CAPTURE(seed);
    DeviceRun run(seed);
    std::byte* const x = run.upload(some_bytes());
    std::byte* const y = run.allocate(kNumel * sizeof(float));
    name_memory(x, "x");
    name_memory(y, "y");
    body(run, x, y);
    run.synchronize();
    expect_reported(run.session(), kind, texts);
  }
}

TEST_SUITE("fakecuda/kernels/planted") {
  TEST_CASE("one element too many is reported when it is read and when it is written") {
    expect_in_all_orders(ReportKind::OutOfBounds, {"read", "'exp'", "'x'"},
                         [](DeviceRun& run, std::byte* x, std::byte* y) {
                           kernels::map(run.launch(), kernels::Exp{}, floats(y, kNumel),
                                        floats(x + sizeof(float), kNumel));
                         });
    expect_in_all_orders(ReportKind::OutOfBounds, {"write", "'fill'", "'y'"},
                         [](DeviceRun& run, std::byte* /*x*/, std::byte* y) {
                           kernels::fill(run.launch(), floats(y, kNumel + 1), 1);
                         });
  }

  TEST_CASE("threads that write one element are a race") {
    expect_in_all_orders(ReportKind::UnorderedAccess,
                         {"a race within a launch of 'copy', thread", "writes and thread", "'y'"},
                         [](DeviceRun& run, std::byte* x, std::byte* y) {
                           kernels::copy(run.launch(), floats(y, kNumel, 0), floats(x, kNumel));
                         });
  }

  TEST_CASE("a thread that writes what another one reads is a race in every order of threads") {
    expect_in_all_orders(ReportKind::UnorderedAccess, {"a race within a launch of 'copy'", "'x'"},
                         [](DeviceRun& run, std::byte* x, std::byte* /*y*/) {
                           kernels::copy(run.launch(), floats(x + sizeof(float), kNumel - 1),
                                         floats(x, kNumel - 1));
                         });
  }

  TEST_CASE("memory of the host is reported when a kernel reads it") {
    std::vector<float> host(kNumel, 1);
    expect_in_all_orders(ReportKind::InvalidUse, {"read", "'copy'", "neither device nor pinned"},
                         [&](DeviceRun& run, std::byte* /*x*/, std::byte* y) {
                           kernels::copy(run.launch(), floats(y, kNumel), testing::view_of(host));
                         });
  }

  TEST_CASE("memory that nobody has written is reported when a kernel reads it") {
    expect_in_all_orders(ReportKind::UninitialisedRead, {"'accumulate'", "'y'"},
                         [](DeviceRun& run, std::byte* x, std::byte* y) {
                           kernels::accumulate(run.launch(), floats(y, kNumel), floats(x, kNumel));
                         });
  }

  TEST_CASE("an address between two elements is reported") {
    expect_in_all_orders(ReportKind::InvalidUse, {"a misaligned access by 'copy'", "'x'"},
                         [](DeviceRun& run, std::byte* x, std::byte* y) {
                           kernels::copy(run.launch(), floats(y, kNumel - 1),
                                         floats(x + 2, kNumel - 1));
                         });
  }
}

}  // namespace
}  // namespace fsdptrain::fakecuda
