#include <memory>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fakecuda/fixture.h"

// What CUDA promises about streams, events and copies, and nothing more.
namespace fsdptrain::fakecuda {
namespace {

constexpr std::size_t kNumel = 64;
constexpr std::size_t kNbytes = kNumel * sizeof(float);

struct Two {
  explicit Two(Options options) : session(checked(std::move(options))) {}

  void end_silently() {
    things.destroy();
    session.finish();
    expect_no_reports(session);
  }

  Session session;
  Things things;
  cudaStream_t a = things.stream();
  cudaStream_t b = things.stream();
  cudaEvent_t event = things.event();
  float* x = things.device(kNumel);
};

}  // namespace

TEST_SUITE("fakecuda/streams") {
  TEST_CASE("nothing runs before somebody waits for it, unless the order is random") {
    Two two({.seed = 0});
    bool ran = false;
    succeed(enqueue(two.a, {.name = "work", .run = [&] { ran = true; }}));
    CHECK(cudaStreamQuery(two.a) == cudaErrorNotReady);
    CHECK_FALSE(ran);
    succeed(cudaStreamSynchronize(two.a));
    CHECK(ran);
    CHECK(cudaStreamQuery(two.a) == cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);
    two.end_silently();
  }

  TEST_CASE("operations of a stream run in the order of their calls, of two in any") {
    std::set<std::string> orders;
    in_all_orders([&](std::uint64_t seed) {
      Two two({.seed = seed});
      std::string order;
      for (const char letter : {'1', '2', '3'}) {
        succeed(enqueue(two.a, {.name = "digit", .run = [&, letter] { order += letter; }}));
        const char other = static_cast<char>(letter - '1' + 'a');
        succeed(enqueue(two.b, {.name = "letter", .run = [&, other] { order += other; }}));
      }
      two.end_silently();
      std::string digits;
      std::string letters;
      for (const char each : order) {
        (each < 'a' ? digits : letters) += each;
      }
      CHECK(digits == "123");
      CHECK(letters == "abc");
      orders.insert(order);
    });
    CHECK(orders.count("1a2b3c") == 1);
    CHECK(orders.count("abc123") == 1);
    CHECK(orders.size() >= 5);
  }

  TEST_CASE("a lazy order runs only what is waited for") {
    Two two({.seed = 2});
    std::string order;
    const auto add = [&](cudaStream_t stream, char letter) {
      succeed(enqueue(stream, {.name = "letter", .run = [&order, letter] { order += letter; }}));
    };
    add(two.a, 'a');
    succeed(cudaEventRecord(two.event, two.a));
    add(two.a, 'b');
    const cudaStream_t c = two.things.stream();
    add(c, 'c');
    succeed(cudaStreamWaitEvent(two.b, two.event, 0));
    add(two.b, 'd');
    succeed(cudaStreamSynchronize(two.b));
    CHECK(order == "ad");
    two.end_silently();
    CHECK(order == "adbc");
  }

  TEST_CASE("a wait is for the last record before it") {
    in_all_orders([](std::uint64_t seed) {
      Two two({.seed = seed});
      launch(two.a, "first", {}, {range(two.x, 1)});
      succeed(cudaEventRecord(two.event, two.a));
      succeed(cudaStreamWaitEvent(two.b, two.event, 0));
      // Too late for the wait.
      launch(two.a, "second", {}, {range(two.x + 1, 1)});
      succeed(cudaEventRecord(two.event, two.a));
      launch(two.b, "reader of the first", {range(two.x, 1)}, {});
      launch(two.b, "reader of the second", {range(two.x + 1, 1)}, {});
      two.things.destroy();
      const std::string text = describe_all(two.session.reports());
      CAPTURE(text);
      CHECK(text.find("'reader of the second'") != std::string::npos);
      CHECK(text.find("'reader of the first'") == std::string::npos);
    });
  }

  TEST_CASE("an event that was never recorded is not waited for") {
    Two two({});
    succeed(cudaStreamWaitEvent(two.a, two.event, 0));
    succeed(cudaEventSynchronize(two.event));
    CHECK(cudaEventQuery(two.event) == cudaSuccess);
    two.end_silently();
  }

  TEST_CASE("an event that the host saw orders what the host does next") {
    in_all_orders([](std::uint64_t seed) {
      Two two({.seed = seed});
      launch(two.a, "writer", {}, {range(two.x, kNumel)});
      succeed(cudaEventRecord(two.event, two.a));
      if (seed % 2 == 0) {
        succeed(cudaEventSynchronize(two.event));
      } else {
        succeed(cudaStreamSynchronize(two.a));
        CHECK(cudaEventQuery(two.event) == cudaSuccess);
      }
      launch(two.b, "reader", {range(two.x, kNumel)}, {});
      two.end_silently();
    });
  }

  TEST_CASE("an event that is not over yet orders nothing for the host") {
    Two two({.seed = 0});
    launch(two.a, "writer", {}, {range(two.x, kNumel)});
    succeed(cudaEventRecord(two.event, two.a));
    CHECK(cudaEventQuery(two.event) == cudaErrorNotReady);
    launch(two.b, "reader", {range(two.x, kNumel)}, {});
    two.things.destroy();
    expect_reported(two.session, ReportKind::UnorderedAccess, {"'reader'", "'writer'"});
  }

  TEST_CASE("a copy from pageable memory reads it during the call") {
    in_all_orders([](std::uint64_t seed) {
      Two two({.seed = seed});
      std::vector<float> host(kNumel, 1.0F);
      succeed(cudaMemcpyAsync(two.x, host.data(), kNbytes, cudaMemcpyHostToDevice, two.a));
      host.assign(kNumel, 2.0F);
      std::vector<float> back(kNumel);
      // To pageable memory, the call waits.
      succeed(cudaMemcpyAsync(back.data(), two.x, kNbytes, cudaMemcpyDeviceToHost, two.a));
      CHECK(back == std::vector<float>(kNumel, 1.0F));
      two.end_silently();
    });
  }

  TEST_CASE("a plain memset is ordered before nothing in other streams") {
    in_all_orders([](std::uint64_t seed) {
      Two two({.seed = seed});
      succeed(cudaMemset(two.x, 0, kNbytes));
      launch(two.a, "adds to zeros", {}, {range(two.x, kNumel)});
      succeed(cudaDeviceSynchronize());
      two.things.destroy();
      expect_reported(two.session, ReportKind::UnorderedAccess,
                      {"'adds to zeros'", "'cudaMemset'", "the default stream of 0"});
    });
  }

  TEST_CASE("registered memory is checked until it is unregistered") {
    Two two({.seed = 0});
    std::vector<float> host(kNumel);
    succeed(cudaHostRegister(host.data(), kNbytes, 0));
    CHECK(cudaHostRegister(host.data(), kNbytes, 0) == cudaErrorHostMemoryAlreadyRegistered);
    succeed(cudaMemcpyAsync(two.x, host.data(), kNbytes, cudaMemcpyHostToDevice, two.a));
    check_host_access(host.data(), 4, Access::Write);
    succeed(cudaStreamSynchronize(two.a));
    expect_reported(two.session, ReportKind::UnorderedAccess,
                    {"'host write'", "cudaHostRegister #1 (256 bytes)"});
    succeed(cudaHostUnregister(host.data()));
    CHECK(cudaHostUnregister(host.data()) == cudaErrorHostMemoryNotRegistered);
    CHECK(check_host_access(host.data(), 4, Access::Write));
    two.things.destroy();
    CHECK(two.session.reports().size() == 2);
  }

  TEST_CASE("misuse is named") {
    Two two({.num_devices = 2});
    const auto expect = [&](ReportKind kind, std::string_view text) {
      const Report last = two.session.reports().back();
      CHECK(last.kind == kind);
      CHECK(describe(last).find(text) != std::string::npos);
    };
    CHECK(cudaMemsetAsync(two.x, 0, kNbytes, nullptr) == cudaErrorInvalidResourceHandle);
    expect(ReportKind::LegacyStream, "cudaMemsetAsync on a default stream");
    CHECK(cudaEventRecord(two.event, nullptr) == cudaErrorInvalidResourceHandle);
    expect(ReportKind::LegacyStream, "cudaEventRecord");

    cudaStream_t stream = nullptr;
    succeed(cudaStreamCreateWithFlags(&stream, 0));
    expect(ReportKind::InvalidUse, "without cudaStreamNonBlocking");
    succeed(cudaStreamDestroy(stream));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
    expect(ReportKind::StreamMisuse, "cudaStreamSynchronize: stream 2 was destroyed");
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaSuccess);

    cudaEvent_t event = nullptr;
    succeed(cudaEventCreateWithFlags(&event, 0));
    succeed(cudaEventDestroy(event));
    CHECK(cudaStreamWaitEvent(two.a, event, 0) == cudaErrorInvalidResourceHandle);
    expect(ReportKind::EventMisuse, "event 1 was destroyed");

    succeed(cudaSetDevice(1));
    CHECK(enqueue(two.a, {.name = "elsewhere"}) == cudaErrorInvalidResourceHandle);
    expect(ReportKind::StreamMisuse, "stream 0 is of device 0, the current device is 1");
    const cudaEvent_t of_one = two.things.event();
    CHECK(cudaEventRecord(of_one, two.a) == cudaErrorInvalidResourceHandle);
    expect(ReportKind::EventMisuse, "event 2 is of device 1");
    succeed(cudaSetDevice(0));

    float host = 0;
    CHECK(cudaMemcpyAsync(two.x, &host, 4, cudaMemcpyDeviceToHost, two.a) ==
          cudaErrorInvalidMemcpyDirection);
    expect(ReportKind::InvalidUse, "host to device, but the call says another direction");
    launch(two.a, "stack", {{&host, 4}}, {});
    succeed(enqueue(two.a, {.name = "caller", .run = [] { cudaDeviceSynchronize(); }}));
    succeed(enqueue(two.a, {.name = "thrower", .run = [] { fail("no kernel throws"); }}));
    two.things.destroy();
    const std::string text = describe_all(two.session.reports());
    CHECK(text.find("neither device nor pinned memory") != std::string::npos);
    CHECK(text.find("cudaDeviceSynchronize is called from inside of an operation") !=
          std::string::npos);
    CHECK(text.find("'thrower' threw: no kernel throws") != std::string::npos);
  }

  TEST_CASE("outside of a session there is no device") {
    int count = 7;
    CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
    CHECK(count == 0);
    CHECK(std::string(cudaGetErrorName(cudaErrorNoDevice)) == "cudaErrorNoDevice");
    CHECK(cudaDeviceSynchronize() == cudaErrorNoDevice);
  }

  TEST_CASE("what ran can be simulated with its durations") {
    using namespace std::chrono_literals;
    in_all_orders([](std::uint64_t seed) {
      Two two({.seed = seed, .copy_duration = [](std::size_t nbytes) {
                 return std::chrono::nanoseconds(nbytes);
               }});
      auto* pinned = two.things.pinned(kNumel);
      // Copies of 256 and 128 ns, kernels of 100 ns after each: 256 + max(128, 100) + 100.
      for (const std::size_t nbytes : {kNbytes, kNbytes / 2}) {
        float* to = two.x;
        succeed(cudaMemcpyAsync(nbytes == kNbytes ? to : two.things.device(kNumel), pinned, nbytes,
                                cudaMemcpyHostToDevice, two.a));
        succeed(cudaEventRecord(two.event, two.a));
        succeed(cudaStreamWaitEvent(two.b, two.event, 0));
        succeed(enqueue(two.b, {.name = "kernel", .duration = 100ns}));
      }
      two.end_silently();
      const auto ops = two.session.virtual_ops();
      CHECK(testing::simulate(ops, testing::LinkModel::Separate).makespan == 484ns);
    });
  }
}

}  // namespace fsdptrain::fakecuda
