#include "comm/store/socket_pairs.h"

#include <fcntl.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/store/client.h"
#include "comm/store/server_loop.h"
#include "tests/comm/store/store_job.h"

namespace fsdptrain::testing {
namespace {

using namespace std::chrono_literals;
using namespace comm;
using namespace comm::store;

// Far beyond what anything here takes.
constexpr Nanoseconds kLong = 60s;

// The store of a launcher, and the ends that its ranks inherit.
struct Launched {
  explicit Launched(int world_size, bool reports_ends = false) {
    std::vector<Descriptor> servers;
    for (int rank = 0; rank < world_size; ++rank) {
      SocketPair pair = make_socket_pair(job_token());
      servers.push_back(std::move(pair.server));
      ranks.push_back(std::move(pair.rank));
    }
    server.emplace(listen_at(std::move(servers)), ServerOptions{.job_id = "job",
                                                                .token = job_token(),
                                                                .world_size = world_size,
                                                                .reports_ends = reports_ends});
  }

  std::unique_ptr<comm::Store> join(std::size_t rank) {
    InheritedConnection inherited = inherit_connection(ranks[rank].release());
    return std::make_unique<comm::Store>(
        std::move(inherited.connection),
        comm::Store::Options{
            .identity = identity_of(static_cast<int>(rank), static_cast<int>(ranks.size())),
            .token = inherited.token},
        kLong);
  }

  std::vector<Descriptor> ranks;
  std::optional<ServerThread> server;
};

}  // namespace

TEST_SUITE("comm/store/socket_pairs") {
  TEST_CASE("ranks join by the ends that they inherited, with the token in them") {
    Launched job(2);
    const auto zero = job.join(0);
    const auto one = job.join(1);
    zero->set("k", "from 0", kLong);
    CHECK(one->get("k", kLong) == "from 0");
    zero->close(kLong);
    one->close(kLong);
    CHECK(job.server->attendance() == std::vector{Attendance::Left, Attendance::Left});
  }

  TEST_CASE("who never joined, is there, said goodbye or did not is known") {
    Launched job(4);
    const auto here = job.join(1);
    job.join(2)->close(kLong);
    job.join(3);
    job.ranks[0].close();
    CHECK(job.server->attendance() ==
          std::vector{Attendance::Never, Attendance::Here, Attendance::Left, Attendance::Lost});
    // The launcher reports ends.
    CHECK(job.server->failure() == std::nullopt);
    job.server->report_failure(3, "it was ended by signal 9");
    CHECK_THROWS_WITH_AS(here->get("k", kLong),
                         doctest::Contains("rank 3 failed: it was ended by signal 9"), PeerError);
  }

  TEST_CASE("what the ranks sent last counts at the moment of the question") {
    for (int round = 0; round < 50; ++round) {
      Launched job(1);
      job.join(0)->close(kLong);
      CHECK(job.server->attendance() == std::vector{Attendance::Left});
      Launched other(1);
      other.join(0);
      CHECK(other.server->attendance() == std::vector{Attendance::Lost});
    }
  }

  TEST_CASE("the other end of the descriptor is not passed on") {
    Launched job(1);
    const int descriptor = job.ranks[0].number();
    const auto store = job.join(0);
    CHECK((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
  }

  TEST_CASE("a descriptor that is no end of a pair is refused, and says who may be to blame") {
    CHECK_THROWS_WITH_AS(
        inherit_connection(4000),
        doctest::Contains("descriptor 4000 must be the rank's connection to its launcher, but Bad "
                          "file descriptor; a program between"),
        ConfigError);
    const Descriptor file(::open("/dev/null", O_RDONLY));
    CHECK_THROWS_WITH_AS(inherit_connection(file.number()), doctest::Contains("Socket operation"),
                         ConfigError);
    Launched job(1);
    const Descriptor copy(::dup(job.ranks[0].number()));
    const auto store = job.join(0);
    CHECK_THROWS_WITH_AS(inherit_connection(copy.number()),
                         doctest::Contains("its token was read before"), ConfigError);
  }
}

}  // namespace fsdptrain::testing
