#include <algorithm>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <doctest/doctest.h>

#include "comm/flight/memory.h"
#include "comm/init/init.h"
#include "comm/init/meeting_folder.h"
#include "comm/shm/segment.h"
#include "comm/store/server_loop.h"
#include "comm/store/socket_pairs.h"
#include "tests/support/job_processes.h"
#include "tests/support/temporary_folder.h"

// Processes that become ranks by their environment, and what becomes of them.
namespace fsdptrain::comm {
namespace {

using testing::ChildProcess;
using testing::job_process;
using Values = Environment;

// Ranks that another launcher than ours has started on this host.
std::vector<ChildProcess> start_foreign(const testing::TemporaryFolder& folder, int size,
                                        const std::string& scenario, const Values& more = {}) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    Values values{{"RANK", std::to_string(rank)},
                  {"WORLD_SIZE", std::to_string(size)},
                  {"XDG_RUNTIME_DIR", folder.path().native()}};
    values.insert(more.begin(), more.end());
    ranks.push_back(job_process(values, {scenario}));
  }
  return ranks;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

int count(const std::string& text, const std::string& part) {
  int number = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++number;
  }
  return number;
}

}  // namespace

TEST_SUITE("comm/job") {
  TEST_CASE("without a launcher a process is the one rank of its job") {
    ChildProcess alone = job_process({}, {"sum"});
    const auto end = alone.wait();
    CHECK(end.code == 0);
    CHECK_MESSAGE(end.output == "rank 0 of 1 sum 1 threads 1\n", end.output);
    CHECK(end.errors.empty());
  }

  TEST_CASE("ranks of a foreign launcher meet, and leave no file behind") {
    const testing::TemporaryFolder folder;
    for (const int size : {2, 4}) {
      auto ranks = start_foreign(folder, size, "sum", {{"MASTER_PORT", "29123"}});
      for (int rank = 0; rank < size; ++rank) {
        const auto end = ranks[static_cast<std::size_t>(rank)].wait();
        CAPTURE(end.output);
        CHECK(end.code == 0);
        CHECK(has(end.output,
                  fmt::format("rank {} of {} sum {}", rank, size, size * (size + 1) / 2)));
        const std::string said =
            fmt::format("fsdptrain: rank 0 of {}, by torchrun (RANK, WORLD_SIZE)\n", size);
        CHECK_MESSAGE(end.errors == (rank == 0 ? said : std::string()), end.errors);
      }
      CHECK(folder.num_files() == 0);
    }
  }

  TEST_CASE("two jobs with ports of their own meet apart at the same time") {
    const testing::TemporaryFolder folder;
    auto first = start_foreign(folder, 2, "sum", {{"MASTER_PORT", "1001"}});
    auto second = start_foreign(folder, 2, "sum", {{"MASTER_PORT", "1002"}});
    for (auto* job : {&first, &second}) {
      for (ChildProcess& rank : *job) {
        CHECK(rank.wait().code == 0);
      }
    }
  }

  TEST_CASE("what a killed job has left in its folder is taken over") {
    const testing::TemporaryFolder folder;
    {
      ChildProcess dead = job_process(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"XDG_RUNTIME_DIR", folder.path().native()}},
          {"sum"});
      // Its token is the last that it makes before it waits.
      const auto token = folder / fmt::format("fsdptrain-{}-none-29500/token", ::geteuid());
      REQUIRE(dead.wait_until([&] { return std::filesystem::exists(token); }));
      dead.send(SIGKILL);
      CHECK(dead.wait().code == 128 + SIGKILL);
      CHECK(folder.num_files() == 1);
    }
    auto ranks = start_foreign(folder, 2, "sum");
    for (ChildProcess& rank : ranks) {
      const auto end = rank.wait();
      CHECK_MESSAGE(end.code == 0, end.output);
    }
    CHECK(folder.num_files() == 0);
  }

  TEST_CASE("a folder that others may enter, and one that a live job uses, are refused") {
    const testing::TemporaryFolder folder;
    const auto path = folder / fmt::format("fsdptrain-{}-none-29500", ::geteuid());
    REQUIRE(::mkdir(path.c_str(), 0755) == 0);
    REQUIRE(::chmod(path.c_str(), 0755) == 0);
    ChildProcess open = job_process(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"XDG_RUNTIME_DIR", folder.path().native()}}, {"sum"});
    auto end = open.wait();
    CHECK(end.code == 3);
    CHECK_MESSAGE(has(end.output, "must be a folder of this user that no other may enter"),
                  end.output);
    // Long before rank 0 can have come.
    const Values other{
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"XDG_RUNTIME_DIR", folder.path().native()}};
    end = job_process(other, {"sum", "600"}).wait();
    CHECK_MESSAGE(has(end.output, "must be a folder of this user that no other may enter"),
                  end.output);
    REQUIRE(::rmdir(path.c_str()) == 0);
    std::filesystem::create_directory_symlink(folder.path(), path);
    end = job_process(other, {"sum", "600"}).wait();
    CHECK_MESSAGE(has(end.output, "must be a folder of this user that no other may enter"),
                  end.output);
    REQUIRE(::unlink(path.c_str()) == 0);

    ChildProcess live = job_process(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"XDG_RUNTIME_DIR", folder.path().native()}}, {"sum"});
    REQUIRE(live.wait_until([&] { return std::filesystem::exists(path / "token"); }));
    ChildProcess second = job_process(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"XDG_RUNTIME_DIR", folder.path().native()}}, {"sum"});
    end = second.wait();
    CHECK(end.code == 3);
    CHECK_MESSAGE(
        has(end.output, "another rank 0 of the same job is waiting for its ranks there: give"),
        end.output);
  }

  TEST_CASE("ranks meet in the first folder that is one, and hear of all that are none") {
    const testing::TemporaryFolder folder;
    const auto found = [&](const Values& values) {
      return meeting_folder({},
                            [&](std::string_view name) -> std::optional<std::string> {
                              const auto value = values.find(std::string(name));
                              return value == values.end() ? std::nullopt
                                                           : std::optional(value->second);
                            })
          .parent_path();
    };
    const std::string none = folder / "none";
    const std::string other = folder.path();
    CHECK(found({{"XDG_RUNTIME_DIR", other}, {"TMPDIR", none}}) == other);
    CHECK(found({{"XDG_RUNTIME_DIR", none}, {"TMPDIR", other}}) == other);
    CHECK(found({{"TMPDIR", other}}) == other);
    CHECK(found({{"XDG_RUNTIME_DIR", none}, {"TMPDIR", none}}) == "/tmp");
    CHECK(found({{"TMPDIR", "/proc/self/exe"}}) == "/tmp");
    CHECK(found({}) == "/tmp");
  }

  TEST_CASE("ranks that do not come are named, by rank 0 and by those that wait for it") {
    const testing::TemporaryFolder folder;
    const Values values{
        {"RANK", "0"}, {"WORLD_SIZE", "3"}, {"XDG_RUNTIME_DIR", folder.path().native()}};
    ChildProcess alone = job_process(values, {"sum", "1"});
    auto end = alone.wait();
    CHECK(end.code == 3);
    CHECK_MESSAGE(has(end.output,
                      "rank 0 of 3, by torchrun (RANK, WORLD_SIZE): not all ranks have come in 1 "
                      "s, missing: ranks 1-2"),
                  end.output);
    CHECK(folder.num_files() == 0);
    Values other = values;
    other.at("RANK") = std::string("2");
    ChildProcess late = job_process(other, {"sum", "1"});
    end = late.wait();
    CHECK(end.code == 3);
    CHECK_MESSAGE(has(end.output, "rank 2 of 3, by torchrun (RANK, WORLD_SIZE): "), end.output);
    CHECK(has(end.output, "no rank 0 has come there after 1 s: is it running, on this host"));
  }

  TEST_CASE("a rank that waits says for whom, and how many are there") {
    const testing::TemporaryFolder folder;
    Values values{{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"XDG_RUNTIME_DIR", folder.path().native()}};
    ChildProcess first = job_process(values, {"sum", "1", "0"});
    auto end = first.wait();
    CHECK_MESSAGE(has(end.errors,
                      "fsdptrain: rank 2 of 4, by torchrun (RANK, WORLD_SIZE): waiting "
                      "for rank 0, which has not come to " +
                          folder.path().native()),
                  end.errors);
    values.at("RANK") = "0";
    ChildProcess alone = job_process(values, {"sum", "1", "0"});
    end = alone.wait();
    CHECK_MESSAGE(has(end.errors,
                      "fsdptrain: rank 0 of 4, by torchrun (RANK, WORLD_SIZE): waiting "
                      "for ranks 1-3, 1 of 4 is here\n"),
                  end.errors);
    ChildProcess patient = job_process(values, {"sum", "1"});
    CHECK_FALSE(has(patient.wait().errors, "waiting for"));
  }

  TEST_CASE("several hosts are refused by name") {
    const auto refused = [](const Values& values) {
      ChildProcess rank = job_process(values, {"sum"});
      const auto end = rank.wait();
      CHECK(end.code == 3);
      return end.output;
    };
    const std::string text = refused(
        {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}});
    CHECK_MESSAGE(has(text,
                      "2 of 4 ranks are on this host, by torchrun (RANK, WORLD_SIZE, LOCAL_RANK, "
                      "LOCAL_WORLD_SIZE): several hosts come later"),
                  text);
  }

  TEST_CASE("no rank leaves before rank 0 has done its work") {
    const testing::TemporaryFolder folder;
    auto ranks = start_foreign(folder, 3, "last");
    for (const std::size_t rank : {1, 2}) {
      REQUIRE(ranks[rank].wait_for_output("done "));
    }
    // Longer than a goodbye takes: one that has left answers no more.
    for (int i = 1; i <= 20; ++i) {
      ranks[1].send(SIGUSR2);
      REQUIRE(ranks[1].wait_until([&] { return count(ranks[1].errors(), "rank 1 (") == i; }));
    }
    // It has nothing to read.
    ranks[0].close_input();
    std::vector<std::int64_t> done;
    std::vector<std::int64_t> left;
    for (ChildProcess& rank : ranks) {
      const auto end = rank.wait();
      CAPTURE(end.output);
      REQUIRE(end.code == 0);
      done.push_back(std::stoll(end.output.substr(end.output.find("done ") + 5)));
      left.push_back(std::stoll(end.output.substr(end.output.find("left ") + 5)));
    }
    CHECK(std::ranges::min(left) > done[0]);
  }

  TEST_CASE("a rank that throws, dies or leaves ends the others by name") {
    const testing::TemporaryFolder folder;
    const std::map<std::string, std::string> texts{
        {"throw", "rank 1 failed: no more tokens"},
        {"die", "rank 1 died before the end of barrier"},
        {"leave", "rank 1 left before the end of barrier"}};
    for (const auto& [scenario, text] : texts) {
      CAPTURE(scenario);
      auto ranks = start_foreign(folder, 3, scenario);
      for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
        const auto end = ranks[rank].wait();
        CHECK(end.code == 3);
        CHECK_MESSAGE(has(end.output, text), end.output);
      }
      CHECK(folder.num_files() == 0);
    }
  }

  TEST_CASE("SIGUSR2 to a rank that is stuck says where it is and ends nothing") {
    const testing::TemporaryFolder folder;
    auto ranks = start_foreign(folder, 2, "stuck");
    REQUIRE(ranks[0].wait_for_output("sum 3"));
    // Each is answered; the first may come before it waits.
    REQUIRE(ranks[0].wait_until([&] {
      ranks[0].send(SIGUSR2);
      return has(ranks[0].errors(),
                 "waits in barrier seq 2 of group 'world' for h.0.mlp.weight (tag "
                 "root 0 group 7 invocation 0) since");
    }));
    CHECK(ranks[0].wait_for_errors("for 600 s at most"));
    // The rank that the others wait for says so, too.
    ranks[1].send(SIGUSR2);
    CHECK(ranks[1].wait_for_errors("waits for nobody\n"));
    CHECK(ranks[1].wait_for_errors("all_reduce seq 1 of group 'world'"));
    ranks[1].close_input();
    for (ChildProcess& rank : ranks) {
      CHECK(rank.wait().code == 0);
    }
  }

  TEST_CASE("a rank that breaks holds the others beyond any deadline until it is told to go on") {
    const testing::TemporaryFolder folder;
    auto ranks = start_foreign(folder, 2, "break", {{"FSDPTRAIN_BREAK_RANK", "1@2"}});
    REQUIRE(ranks[1].wait_for_errors("waits for a debugger before step 2: gdb -p"));
    CHECK(ranks[1].wait_for_errors("to go on without one: kill -CONT"));
    REQUIRE(ranks[0].wait_for_output("sum 3"));
    REQUIRE(ranks[0].wait_until([&] {
      ranks[0].send(SIGUSR2);
      return has(ranks[0].errors(), "without a deadline");
    }));
    ranks[1].send(SIGCONT);
    for (ChildProcess& rank : ranks) {
      const auto end = rank.wait();
      CHECK_MESSAGE(end.code == 0, end.output);
    }
    ChildProcess bad = job_process({{"FSDPTRAIN_BREAK_RANK", "1"}}, {"sum"});
    const auto end = bad.wait();
    CHECK(end.code == 3);
    CHECK_MESSAGE(has(end.output, "FSDPTRAIN_BREAK_RANK: the rank must be one of 0 to 0, got 1"),
                  end.output);
  }

  TEST_CASE("our launcher's ranks take what they inherit, and miss what a wrapper has closed") {
    const store::Secret token = store::Secret::random();
    const Descriptor segment(Segment::create({2, 1 << 20}));
    std::vector<Descriptor> servers;
    std::vector<store::SocketPair> pairs;
    std::vector<FlightMemory> rings;
    for (int rank = 0; rank < 3; ++rank) {
      pairs.push_back(store::make_socket_pair(token));
      servers.push_back(std::move(pairs.back().server));
      rings.push_back(FlightMemory::create({.rank = rank % 2, .world_size = 2}));
    }
    store::ServerThread server(store::listen_at(std::move(servers)),
                               {.job_id = "job 7", .token = token, .world_size = 2});
    const auto values = [&](std::size_t rank) {
      return Values{{"RANK", std::to_string(rank % 2)},
                    {"WORLD_SIZE", "2"},
                    {"LOCAL_RANK", std::to_string(rank % 2)},
                    {"LOCAL_WORLD_SIZE", "2"},
                    {"TORCHELASTIC_RUN_ID", "job 7"},
                    {"FSDPTRAIN_WORKER", "1 segment=40 flight=41 store=42 bound=0 processors=2"}};
    };
    const auto inherited = [&](std::size_t rank) {
      return std::map<int, int>{
          {40, segment.number()}, {41, rings[rank].descriptor()}, {42, pairs[rank].rank.number()}};
    };
    for (const int missing : {40, 41, 42}) {
      auto some = inherited(2);
      some.erase(missing);
      ChildProcess rank = job_process(values(2), {"sum"}, some);
      const auto end = rank.wait();
      CHECK(end.code == 3);
      CHECK_MESSAGE(has(end.output, fmt::format("FSDPTRAIN_WORKER: descriptor {}, the ", missing)),
                    end.output);
    }
    ChildProcess first = job_process(values(0), {"sum"}, inherited(0));
    ChildProcess second = job_process(values(1), {"sum"}, inherited(1));
    for (ChildProcess* rank : {&first, &second}) {
      const auto end = rank->wait();
      CHECK_MESSAGE(end.code == 0, end.output);
      CHECK(has(end.output, "sum 3"));
      CHECK(end.errors.empty());
    }
    CHECK_FALSE(server.failure());
    CHECK(server.attendance() == std::vector{store::Attendance::Left, store::Attendance::Left});
    // What they did is in the rings that the launcher holds.
    CHECK(read_flight_ring(rings[1].descriptor(), "ring").records.size() >= 4);
  }
}

}  // namespace fsdptrain::comm
