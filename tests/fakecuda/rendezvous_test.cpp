#include "tests/fakecuda/rendezvous.h"

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fakecuda/fixture.h"

namespace fsdptrain::fakecuda {
namespace {

constexpr std::size_t kNumel = 64;

struct Ranks {
  explicit Ranks(std::uint64_t seed) : session(checked({.seed = seed})) {}

  void join(std::size_t rank, const std::shared_ptr<Rendezvous>& rendezvous,
            std::vector<Range> reads, std::vector<Range> writes) {
    OpSpec op{.name = "gather"};
    op.parts.push_back({.rendezvous = rendezvous,
                        .participant = rank,
                        .reads = std::move(reads),
                        .writes = std::move(writes)});
    succeed(enqueue(streams[rank], std::move(op)));
  }

  void end_silently() {
    things.destroy();
    session.finish();
    expect_no_reports(session);
  }

  Session session;
  Things things;
  std::vector<cudaStream_t> streams = {things.stream(), things.stream()};
  float* x = things.device(kNumel);
  float* y = things.device(kNumel);
  float* z = things.device(kNumel);
  cudaEvent_t event = things.event();
  std::string order;
  std::shared_ptr<Rendezvous> gather = std::make_shared<Rendezvous>(
      Rendezvous::Options{.name = "gather #0", .participants = {"rank 0", "rank 1"}, .run = [this] {
                            order += "gather ";
                          }});
};

}  // namespace

TEST_SUITE("fakecuda/rendezvous") {
  TEST_CASE("it runs once, when all have arrived, and orders all after all") {
    in_all_orders([](std::uint64_t seed) {
      Ranks ranks(seed);
      succeed(enqueue(ranks.streams[0], {.name = "before",
                                         .writes = {range(ranks.x, kNumel)},
                                         .run = [&] { ranks.order += "before "; }}));
      ranks.join(0, ranks.gather, {range(ranks.x, kNumel)}, {});
      ranks.join(1, ranks.gather, {}, {range(ranks.y, kNumel)});
      // What the other stream did before it arrived, too.
      succeed(enqueue(ranks.streams[1], {.name = "after",
                                         .reads = {range(ranks.y, kNumel)},
                                         .writes = {range(ranks.x, kNumel)},
                                         .run = [&] { ranks.order += "after"; }}));
      ranks.end_silently();
      CHECK(ranks.order == "before gather after");
      CHECK(ranks.gather->done());
    });
  }

  TEST_CASE("a wait that is missing before it is reported with the participant's operation") {
    in_all_orders([](std::uint64_t seed) {
      Ranks ranks(seed);
      const cudaStream_t compute = ranks.things.stream();
      launch(compute, "kernel", {}, {range(ranks.x, kNumel)});
      ranks.join(0, ranks.gather, {range(ranks.x, kNumel)}, {});
      ranks.join(1, ranks.gather, {}, {range(ranks.y, kNumel)});
      ranks.things.destroy();
      const std::string text = describe_all(ranks.session.reports());
      CAPTURE(text);
      CHECK(text.find("unordered access") != std::string::npos);
      CHECK(text.find("'gather' (op 2, device 0, stream 0)") != std::string::npos);
      CHECK(text.find("'kernel'") != std::string::npos);
    });
  }

  TEST_CASE("what it writes must be waited for") {
    in_all_orders([](std::uint64_t seed) {
      Ranks ranks(seed);
      const cudaStream_t compute = ranks.things.stream();
      ranks.join(0, ranks.gather, {}, {range(ranks.x, kNumel)});
      ranks.join(1, ranks.gather, {}, {range(ranks.y, kNumel)});
      succeed(cudaEventRecord(ranks.event, ranks.streams[0]));
      succeed(cudaStreamWaitEvent(compute, ranks.event, 0));
      launch(compute, "kernel", {range(ranks.x, kNumel)}, {});
      ranks.end_silently();

      Ranks without(seed);
      const cudaStream_t other = without.things.stream();
      without.join(0, without.gather, {}, {range(without.x, kNumel)});
      without.join(1, without.gather, {}, {range(without.y, kNumel)});
      launch(other, "kernel", {}, {range(without.x, kNumel)});
      without.things.destroy();
      expect_reported(without.session, ReportKind::UnorderedAccess, {"'kernel'", "'gather'"});
    });
  }

  TEST_CASE("two participants that write the same bytes are reported") {
    in_all_orders([](std::uint64_t seed) {
      Ranks ranks(seed);
      ranks.join(0, ranks.gather, {}, {range(ranks.x, kNumel)});
      ranks.join(1, ranks.gather, {}, {range(ranks.x, kNumel)});
      ranks.things.destroy();
      expect_reported(ranks.session, ReportKind::UnorderedAccess, {"'gather'"});
    });
  }

  TEST_CASE("one operation may stand at several, as sends and receives of a group do") {
    in_all_orders([](std::uint64_t seed) {
      Ranks ranks(seed);
      std::vector<std::shared_ptr<Rendezvous>> sends;
      for (const char* name : {"0 to 1", "1 to 0"}) {
        sends.push_back(std::make_shared<Rendezvous>(Rendezvous::Options{
            .name = name, .participants = {"sender", "receiver"}, .run = [&ranks, name] {
              ranks.order += name;
            }}));
      }
      launch(ranks.streams[0], "fill x", {}, {range(ranks.x, kNumel)});
      launch(ranks.streams[1], "fill y", {}, {range(ranks.y, kNumel)});
      float* received = ranks.things.device(kNumel);
      OpSpec on_0{.name = "group"};
      on_0.parts.push_back({sends[0], 0, {range(ranks.x, kNumel)}, {}});
      on_0.parts.push_back({sends[1], 1, {}, {range(ranks.z, kNumel)}});
      succeed(enqueue(ranks.streams[0], on_0));
      OpSpec on_1{.name = "group"};
      on_1.parts.push_back({sends[1], 0, {range(ranks.y, kNumel)}, {}});
      on_1.parts.push_back({sends[0], 1, {}, {range(received, kNumel)}});
      succeed(enqueue(ranks.streams[1], on_1));
      launch(ranks.streams[0], "use z", {range(ranks.z, kNumel)}, {});
      ranks.end_silently();
      CHECK(ranks.order.size() == 12);
    });
  }

  TEST_CASE("the missing are named when the only host thread waits for them") {
    in_all_orders([](std::uint64_t seed) {
      Ranks ranks(seed);
      ranks.join(0, ranks.gather, {}, {});
      CHECK_THROWS_WITH_AS(cudaStreamSynchronize(ranks.streams[0]),
                           doctest::Contains("'gather #0' waits for rank 1"), HangError);
      // Told once; nothing runs any more.
      CHECK(cudaStreamSynchronize(ranks.streams[0]) == cudaErrorLaunchTimeout);
      ranks.session.finish();
      CHECK(ranks.session.reports()[0].kind == ReportKind::Hang);
    });
  }

  TEST_CASE("a cancelled one lets its participants go and runs nothing") {
    in_all_orders([](std::uint64_t seed) {
      Ranks ranks(seed);
      ranks.join(0, ranks.gather, {}, {range(ranks.x, kNumel)});
      ranks.gather->cancel();
      ranks.join(1, ranks.gather, {}, {range(ranks.y, kNumel)});
      ranks.end_silently();
      CHECK(ranks.order.empty());
      CHECK(ranks.gather->cancelled());
    });
  }

  TEST_CASE("a participant whose device broke never arrives") {
    Session session(checked({.num_devices = 2, .faults = {.broken_op_name = "bad"}}));
    const auto gather = std::make_shared<Rendezvous>(
        Rendezvous::Options{.name = "gather", .participants = {"rank 0", "rank 1"}});
    Things things;
    const cudaStream_t first = things.stream();
    OpSpec op{.name = "gather"};
    op.parts.push_back({.rendezvous = gather, .participant = 0});
    succeed(enqueue(first, op));
    succeed(cudaSetDevice(1));
    const cudaStream_t second = things.stream();
    succeed(enqueue(second, {.name = "bad"}));
    op.parts[0].participant = 1;
    succeed(enqueue(second, op));
    CHECK(cudaStreamSynchronize(second) == cudaErrorIllegalAddress);
    CHECK_THROWS_WITH_AS(cudaSetDevice(0) == cudaSuccess && cudaStreamSynchronize(first),
                         doctest::Contains("waits for rank 1"), HangError);
    session.finish();
    session.reports();
  }
}

}  // namespace fsdptrain::fakecuda
