#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fakecuda/fixture.h"

// Calls that order, one of which is as if it were not there.
namespace fsdptrain::fakecuda {
namespace {

// A kernel reads what another stream has written, then the host reads a copy of it.
struct Step {
  explicit Step(std::optional<DroppedCall> dropped, std::uint64_t seed = 0,
                bool learns_by_looking = true)
      : session(checked({.seed = seed,
                         .faults = {.dropped_call = dropped},
                         .learns_by_looking = learns_by_looking})) {
    name_stream(first, "first");
    name_stream(second, "second");
  }

  void run() {
    launch(first, "write", {}, {range(x, 4)});
    succeed(cudaEventRecord(written, first));
    succeed(cudaStreamWaitEvent(second, written, 0));
    launch(second, "read", {range(x, 4)}, {range(y, 4)});
    succeed(cudaMemcpyAsync(on_host, y, 4, cudaMemcpyDeviceToHost, second));
    succeed(cudaStreamSynchronize(second));
    seen = on_host[0];
  }

  void finish() {
    things.destroy();
    session.finish();
  }

  Session session;
  Things things;
  cudaStream_t first = things.stream();
  cudaStream_t second = things.stream();
  cudaEvent_t written = things.event();
  char* x = things.device<char>(4);
  char* y = things.device<char>(4);
  char* on_host = things.pinned<char>(4);
  char seen = 0;
};

}  // namespace

TEST_SUITE("fakecuda/ordering") {
  TEST_CASE("every call that orders is listed, with what is before and behind it") {
    Step step({});
    step.run();
    std::vector<std::string> texts;
    for (const OrderingCall& call : step.session.ordering_calls()) {
      texts.push_back(call.text);
    }
    CHECK(texts == std::vector<std::string>{
                       "an event of 'first', after 'write'",
                       "'second' waits for 'first', after 'write', before 'read'",
                       "the host waits for 'second', after 'cudaMemcpyAsync device to host'"});
    CHECK(step.session.num_ordering_calls(0) == 3);
    CHECK(step.session.num_ordering_calls(1) == 0);
    CHECK(step.seen != 0x7f);
    step.finish();
    expect_no_reports(step.session);
  }

  TEST_CASE("an event or a wait that is left out is a missing wait, in every order") {
    for (const std::uint64_t number : {1, 2}) {
      CAPTURE(number);
      in_all_orders([&](std::uint64_t seed) {
        Step step(DroppedCall{0, number}, seed, false);
        step.run();
        step.finish();
        expect_among_reports(step.session, {"unordered access", "'read'", "'write'"});
      });
    }
  }

  TEST_CASE("a host that does not wait for a copy reads what is no value") {
    Step step(DroppedCall{0, 3});
    step.run();
    CHECK(step.seen == 0x7f);
    step.finish();
    expect_no_reports(step.session);
  }

  TEST_CASE("a call of another device is not left out") {
    Step step(DroppedCall{1, 2});
    step.run();
    step.finish();
    expect_no_reports(step.session);
  }

  TEST_CASE("what a host has seen orders nothing where it does not learn by looking") {
    for (const bool learns : {true, false}) {
      CAPTURE(learns);
      Step step({}, 0, learns);
      launch(step.first, "write", {}, {range(step.x, 4)});
      succeed(cudaEventRecord(step.written, step.first));
      // Something that runs what was launched.
      succeed(cudaStreamSynchronize(step.second));
      while (cudaEventQuery(step.written) == cudaErrorNotReady) {
        launch(step.second, "something", {}, {});
        succeed(cudaStreamSynchronize(step.second));
      }
      launch(step.second, "read", {range(step.x, 4)}, {});
      step.finish();
      CHECK(step.session.reports().empty() == learns);
    }
  }

  TEST_CASE("orders are the same in all orders in which operations run, and not without a wait") {
    const auto orders = [](std::optional<DroppedCall> dropped, std::uint64_t seed) {
      Step step(dropped, seed, false);
      step.run();
      step.finish();
      static_cast<void>(step.session.reports());
      return step.session.orders();
    };
    const auto expected = orders({}, 0);
    in_all_orders([&](std::uint64_t seed) { CHECK(orders({}, seed) == expected); });
    CHECK(orders(DroppedCall{0, 2}, 0) != expected);
  }
}

}  // namespace fsdptrain::fakecuda
