#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fakecuda/fixture.h"

// Several host threads: one runs at a time, and a hang is that nobody can.
namespace fsdptrain::fakecuda {
namespace {

constexpr std::size_t kNumel = 64;

// Runs `body(rank)` on threads that the session schedules; what each threw.
std::vector<std::exception_ptr> run_threads(Session& session, int num_threads,
                                            const std::function<void(int, HostSchedule&)>& body) {
  HostSchedule& schedule = session.host_schedule(num_threads);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(num_threads));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_threads; ++rank) {
      threads.emplace_back([&, rank] {
        schedule.begin(rank);
        try {
          body(rank, schedule);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
        schedule.end(rank);
      });
    }
  }
  return errors;
}

std::shared_ptr<Rendezvous> meeting(std::string name, int num_ranks) {
  std::vector<std::string> participants;
  for (int rank = 0; rank < num_ranks; ++rank) {
    participants.push_back("rank " + std::to_string(rank));
  }
  return std::make_shared<Rendezvous>(
      Rendezvous::Options{.name = std::move(name), .participants = std::move(participants)});
}

void join(cudaStream_t stream, const std::shared_ptr<Rendezvous>& rendezvous, int rank,
          std::vector<Range> reads = {}, std::vector<Range> writes = {}) {
  OpSpec op{.name = "all_gather"};
  op.parts.push_back({.rendezvous = rendezvous,
                      .participant = static_cast<std::size_t>(rank),
                      .reads = std::move(reads),
                      .writes = std::move(writes)});
  succeed(enqueue(stream, std::move(op)));
}

// Two ranks with a device each: a kernel, a collective, a kernel, three times.
std::vector<std::string> trace_of_two_ranks(std::uint64_t seed) {
  Session session(checked({.seed = seed, .num_devices = 2}));
  std::vector<std::shared_ptr<Rendezvous>> gathers;
  for (int step = 0; step < 3; ++step) {
    gathers.push_back(meeting("all_gather #" + std::to_string(step), 2));
  }
  const auto errors = run_threads(session, 2, [&](int rank, HostSchedule&) {
    succeed(cudaSetDevice(rank));
    Things things;
    const cudaStream_t stream = things.stream();
    auto* x = things.device(kNumel);
    for (const std::shared_ptr<Rendezvous>& gather : gathers) {
      launch(stream, "before", {}, {range(x, kNumel)});
      join(stream, gather, rank, {range(x, kNumel)}, {range(x, kNumel)});
      launch(stream, "after", {range(x, kNumel)}, {});
    }
    things.destroy();
  });
  CHECK(std::ranges::count(errors, nullptr) == 2);
  session.finish();
  expect_no_reports(session);
  return session.trace();
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const HangError& hang) {
    return hang.what();
  }
}

}  // namespace

TEST_SUITE("fakecuda/hosts") {
  TEST_CASE("a seed fixes the interleaving of two host threads and their operations") {
    std::set<std::vector<std::string>> orders;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      CAPTURE(seed);
      const std::vector<std::string> first = trace_of_two_ranks(seed);
      CHECK(first.size() > 18);
      for (int run = 1; run < 20; ++run) {
        CHECK(trace_of_two_ranks(seed) == first);
      }
      orders.insert(first);
    }
    CHECK(orders.size() == 8);
  }

  TEST_CASE("a rank that never joins is named, with where each rank is") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed, .num_devices = 2}));
      const auto gather = meeting("all_gather #0", 2);
      const auto errors = run_threads(session, 2, [&](int rank, HostSchedule&) {
        succeed(cudaSetDevice(rank));
        Things things;
        const cudaStream_t stream = things.stream();
        if (rank == 0) {
          join(stream, gather, rank);
        }
        things.destroy();
      });
      REQUIRE(errors[0]);
      CHECK_FALSE(errors[1]);
      const std::string text = text_of(errors[0]);
      CHECK(text.find("rank 0 is in cudaStreamSynchronize, which waits for stream") !=
            std::string::npos);
      CHECK(text.find("rank 1 has ended; its last call was cudaStreamDestroy") !=
            std::string::npos);
      CHECK(text.find("'all_gather #0' waits for rank 1") != std::string::npos);
      const std::vector<Report> reports = session.reports();
      CHECK(reports[0].kind == ReportKind::Hang);
      CHECK(describe(reports[0]).find("hosts_test.cpp") != std::string::npos);
      session.finish();
      session.reports();
    });
  }

  TEST_CASE("two ranks that join in different orders hang, and both are told") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed, .num_devices = 2}));
      const auto first = meeting("gather", 2);
      const auto second = meeting("scatter", 2);
      const auto errors = run_threads(session, 2, [&](int rank, HostSchedule&) {
        succeed(cudaSetDevice(rank));
        Things things;
        const cudaStream_t stream = things.stream();
        join(stream, rank == 0 ? first : second, rank);
        join(stream, rank == 0 ? second : first, rank);
        things.destroy();
      });
      for (const std::exception_ptr& error : errors) {
        REQUIRE(error);
        const std::string text = text_of(error);
        CHECK(text.find("'gather' waits for rank 1") != std::string::npos);
        CHECK(text.find("'scatter' waits for rank 0") != std::string::npos);
      }
      CHECK(std::ranges::count(session.reports(), ReportKind::Hang, &Report::kind) == 1);
      session.finish();
      session.reports();
    });
  }

  TEST_CASE("a wait of a host thread lets the other one run, and both are ordered by it") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed}));
      Things things;
      const cudaStream_t stream = things.stream();
      auto* pinned = things.pinned(kNumel);
      auto* x = things.device(kNumel);
      bool written = false;
      const auto errors = run_threads(session, 2, [&](int rank, HostSchedule& schedule) {
        if (rank == 1) {
          check_host_access(pinned, sizeof(float), Access::Write);
          written = true;
          return;
        }
        schedule.wait([&] { return written; });
        succeed(cudaMemcpyAsync(x, pinned, sizeof(float), cudaMemcpyHostToDevice, stream));
      });
      CHECK(std::ranges::count(errors, nullptr) == 2);
      things.destroy();
      session.finish();
      expect_no_reports(session);
    });
  }

  TEST_CASE("host threads that wait for each other are told so") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed}));
      const auto errors = run_threads(
          session, 2, [&](int, HostSchedule& schedule) { schedule.wait([] { return false; }); });
      for (const std::exception_ptr& error : errors) {
        REQUIRE(error);
        CHECK(text_of(error).find("rank 0 is in wait\n  rank 1 is in wait") != std::string::npos);
      }
      expect_reported(session, ReportKind::Hang);
    });
  }

  TEST_CASE("a host function can be what a host thread waits for") {
    in_all_orders([](std::uint64_t seed) {
      Session session(checked({.seed = seed}));
      const auto errors = run_threads(session, 2, [&](int, HostSchedule& schedule) {
        Things things;
        const cudaStream_t stream = things.stream();
        bool ran = false;
        succeed(cudaLaunchHostFunc(
            stream, [](void* argument) { *static_cast<bool*>(argument) = true; }, &ran));
        schedule.wait([&] { return ran; });
        things.destroy();
      });
      CHECK(std::ranges::count(errors, nullptr) == 2);
      expect_no_reports(session);
    });
  }
}

}  // namespace fsdptrain::fakecuda
