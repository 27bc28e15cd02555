#include "comm/store/unix_transport.h"

#include <atomic>
#include <future>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/store/client.h"
#include "comm/store/server_loop.h"
#include "tests/comm/store/store_job.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::testing {
namespace {

using namespace std::chrono_literals;
using namespace comm;
using namespace comm::store;

// Far beyond what anything here takes.
constexpr Nanoseconds kLong = 60s;

// A store on a socket, served by its thread.
struct Served {
  explicit Served(int world_size)
      : server(listen_unix(path),
               {.job_id = "job", .token = job_token(), .world_size = world_size}),
        world_size_(world_size) {}

  std::unique_ptr<comm::Store> join(int rank) const {
    return std::make_unique<comm::Store>(
        connect_unix(path, monotonic_clock(), kLong),
        comm::Store::Options{.identity = identity_of(rank, world_size_), .token = job_token()},
        kLong);
  }

  TemporaryFolder folder;
  std::filesystem::path path = folder / "job/store";
  ServerThread server;

 private:
  int world_size_;
};

}  // namespace

TEST_SUITE("comm/store/unix_transport") {
  TEST_CASE("ranks meet over a socket, each in a thread") {
    constexpr int kWorld = 5;
    const Served served(kWorld);
    std::vector<std::future<std::string>> ranks;
    for (int rank = 0; rank < kWorld; ++rank) {
      ranks.push_back(std::async(std::launch::async, [&served, rank] {
        const auto store = served.join(rank);
        store->set(fmt::format("rank/{}/address", rank),
                   std::string(100'000, 'a' + static_cast<char>(rank)), kLong);
        std::string seen;
        for (int other = 0; other < kWorld; ++other) {
          seen += store->get(fmt::format("rank/{}/address", other), kLong).back();
        }
        for (int i = 0; i < 100; ++i) {
          store->add("n", 1, kLong);
        }
        if (store->add("there", 1, kLong) == kWorld) {
          store->set("all", "", kLong);
        }
        store->get("all", kLong);
        seen += std::to_string(store->add("n", 0, kLong));
        store->close(kLong);
        return seen;
      }));
    }
    for (auto& rank : ranks) {
      CHECK(rank.get() == "abcde500");
    }
    CHECK(served.server.failure() == std::nullopt);
  }

  TEST_CASE("threads of one rank call at the same time, and one that waits delays no other") {
    const Served served(1);
    const auto store = served.join(0);
    std::vector<std::future<std::string>> waiting;
    for (int i = 0; i < 4; ++i) {
      waiting.push_back(std::async(
          std::launch::async, [&store, i] { return store->get(fmt::format("k/{}", i), kLong); }));
    }
    for (int i = 3; i >= 0; --i) {
      store->set(fmt::format("k/{}", i), std::to_string(i), kLong);
      CHECK(waiting[static_cast<std::size_t>(i)].get() == std::to_string(i));
    }
  }

  TEST_CASE("a goodbye ends the waits of other threads of its rank") {
    const Served served(1);
    const auto store = served.join(0);
    auto waiting = std::async(std::launch::async, [&] { store->get("never", kLong); });
    // Long enough to be waiting; if it is not, it finds a closed store instead.
    CHECK(waiting.wait_for(20ms) == std::future_status::timeout);
    store->close(kLong);
    // Now, and not at the deadline.
    CHECK(waiting.wait_for(kLong / 2) == std::future_status::ready);
    CHECK_THROWS_WITH_AS(waiting.get(), doctest::Contains("rank 0 has closed it"), MisuseError);
  }

  TEST_CASE("a rank that dies ends the waits of the others") {
    const Served served(2);
    const auto store = served.join(0);
    auto other = served.join(1);
    auto waiting = std::async(std::launch::async, [&] { store->get("never", kLong); });
    other.reset();
    CHECK_THROWS_WITH_AS(waiting.get(),
                         doctest::Contains("rank 1 failed: its connection to the store ended"),
                         PeerError);
    while (!served.server.failure()) {
      std::this_thread::yield();
    }
    CHECK(served.server.failure() == "rank 1 failed: its connection to the store ended");
  }

  TEST_CASE("whoever serves the store can report a failure, and end it") {
    std::optional<Served> served(std::in_place, 2);
    const auto store = served->join(0);
    const auto other = served->join(1);
    auto waiting = std::async(std::launch::async, [&] { store->get("never", kLong); });
    served->server.report_failure(1, "killed by signal 9");
    CHECK_THROWS_WITH_AS(waiting.get(), doctest::Contains("rank 1 failed: killed by signal 9"),
                         PeerError);
    served.reset();
    CHECK_THROWS_AS(other->get("never", kLong), PeerError);
  }

  TEST_CASE("the end of the store ends every wait") {
    std::optional<Served> served(std::in_place, 1);
    const auto store = served->join(0);
    auto waiting = std::async(std::launch::async, [&] { store->get("never", kLong); });
    const std::filesystem::path path = served->path;
    served.reset();
    CHECK_THROWS_WITH_AS(
        waiting.get(), doctest::Contains("the connection of rank 0 to the store ended"), PeerError);
    CHECK_FALSE(std::filesystem::exists(path));
  }

  TEST_CASE("a client may come before the store, and waits no longer than it said") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "job/store";
    CHECK_THROWS_WITH_AS(connect_unix(path, monotonic_clock(), 10ms),
                         doctest::Contains("nobody listens at"), TimeoutError);
    auto early = std::async(std::launch::async,
                            [&] { return connect_unix(path, monotonic_clock(), kLong); });
    const auto listener = listen_unix(path);
    CHECK(early.get() != nullptr);
  }

  TEST_CASE("a path too long for a socket is named before anything is made") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / (std::string(107, 'x') + "/store");
    CHECK_THROWS_WITH_AS(listen_unix(path), doctest::Contains("may have 107 bytes, got"),
                         ConfigError);
    CHECK(folder.num_files() == 0);
    CHECK_THROWS_AS(connect_unix(path, monotonic_clock(), kLong), ConfigError);
  }

  TEST_CASE("the folder must be one that nobody else can enter") {
    const TemporaryFolder folder;
    const auto path = folder / "job/store";
    {
      const auto listener = listen_unix(path);
      struct stat status {};
      REQUIRE(::stat((folder / "job").c_str(), &status) == 0);
      CHECK((status.st_mode & 07777) == 0700);
      CHECK_THROWS_WITH_AS(listen_unix(path), doctest::Contains("another store uses the folder"),
                           ConfigError);
    }
    CHECK_NOTHROW(listen_unix(path));
    for (const mode_t mode : {0710U, 0701U, 0777U}) {
      CAPTURE(mode);
      REQUIRE(::chmod((folder / "job").c_str(), mode) == 0);
      CHECK_THROWS_WITH_AS(listen_unix(path), doctest::Contains("mode 700, got user"), ConfigError);
    }
    write_file(folder / "file", "");
    CHECK_THROWS_AS(listen_unix(folder / "file/store"), ConfigError);
    REQUIRE(::mkdir((folder / "real").c_str(), 0700) == 0);
    REQUIRE(::symlink((folder / "real").c_str(), (folder / "link").c_str()) == 0);
    CHECK_THROWS_WITH_AS(listen_unix(folder / "link/store"), doctest::Contains("must be a folder"),
                         ConfigError);
    CHECK_THROWS_AS(listen_unix(folder / "missing/job/store"), ConfigError);
  }

  TEST_CASE("both sides talk to processes of one user only") {
    const TemporaryFolder folder;
    const auto path = folder / "job/store";
    const auto listener = listen_unix(path, {.user = ::geteuid() + 1});
    CHECK_THROWS_WITH_AS(connect_unix(path, monotonic_clock(), kLong, {.user = ::geteuid() + 1}),
                         doctest::Contains("must be of user"), ConfigError);
    const auto stranger = connect_unix(path, monotonic_clock(), kLong);
    CHECK(listener->accept().connection == nullptr);
    std::string bytes;
    CHECK(stranger->receive(bytes, 1).ended);
  }

  TEST_CASE("a process without descriptors keeps its store, and accepts when it has some again") {
    const Served served(2);
    const auto store = served.join(0);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const auto early = connect_unix(served.path, monotonic_clock(), kLong);
    // Sanitizers take descriptors where an object is seen for the first time.
    store->set("a", "w", kLong);
    CHECK(store->get("a", kLong) == "w");
    std::string bytes;
    early->wait(false, 1ms);
    CHECK_FALSE(early->receive(bytes, 1).ended);
    // The socket that connects next has the last number that is allowed.
    const int next = ::dup(0);
    ::close(next);
    const rlimit low{.rlim_cur = static_cast<rlim_t>(next) + 1, .rlim_max = before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
    const auto late = connect_unix(served.path, monotonic_clock(), kLong);
    store->set("a", "x", kLong);
    CHECK(store->get("a", kLong) == "x");
    late->send("GET / HTTP/1.1\r\n\r\n");
    late->wait(false, 50ms);
    CHECK_FALSE(late->receive(bytes, 1).ended);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    while (late->receive(bytes, 100).nbytes == 0) {
      late->wait(false, kLong);
    }
    CHECK(bytes == encode_refused(Refusal::Protocol));
    CHECK_NOTHROW(served.join(1)->close(kLong));
    CHECK(store->get("a", kLong) == "x");
  }
}

}  // namespace fsdptrain::testing
