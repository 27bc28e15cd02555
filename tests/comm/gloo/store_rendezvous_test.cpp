#include "comm/gloo/store_rendezvous.h"

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/gloo/connect.h"
#include "comm/run_ranks.h"
#include "tests/support/served_store.h"

namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;
using testing::ServedStore;

Network network_of(Store& store, Nanoseconds timeout) {
  return {.address = {.host = "127.0.0.1", .interface = {}},
          .rendezvous = store_rendezvous(store, timeout),
          .timeout = timeout};
}

}  // namespace

TEST_SUITE("comm/store_rendezvous") {
  TEST_CASE("ranks that meet at a store add up over gloo") {
    for (const int num_ranks : {1, 2, 3}) {
      CAPTURE(num_ranks);
      const ServedStore served(num_ranks);
      const auto connect = [&](int rank) {
        const auto store = served.join(rank);
        Links links = connect_gloo(network_of(*store, 60s), rank, num_ranks);
        store->close(60s);
        return links;
      };
      run_ranks({.num_ranks = num_ranks, .connect = connect}, [&](World& world) {
        const Tensor values = Tensor::full({1000}, world.rank() + 1);
        world.group().issue(all_reduce(values)).wait();
        CHECK(values.values<float>()[999] == static_cast<float>(num_ranks * (num_ranks + 1) / 2));
      });
    }
  }

  TEST_CASE("an address is where only the rank that it belongs to can write") {
    const ServedStore served(1);
    const auto store = served.join(0);
    std::vector<std::string> keys;
    Network network = network_of(*store, 100ms);
    network.rendezvous.set = [&](const std::string& key, const std::string&) {
      keys.push_back(key);
    };
    CHECK_THROWS_AS(connect_gloo(network, 0, 2), TimeoutError);
    REQUIRE_FALSE(keys.empty());
    for (const std::string& key : keys) {
      CAPTURE(key);
      CHECK(key.starts_with("rank/0/"));
    }
  }

  TEST_CASE("a rank that does not come is named at the timeout") {
    const ServedStore served(2);
    const auto store = served.join(0);
    CHECK_THROWS_WITH_AS(connect_gloo(network_of(*store, 100ms), 0, 2),
                         doctest::Contains("rank 0 waits for rank 1, which has not come"),
                         TimeoutError);
  }

  TEST_CASE("a rank that fails before it comes ends the wait of the others at once") {
    const ServedStore served(2);
    const auto other = served.join(1);
    const auto store = served.join(0);
    Network network = network_of(*store, 600s);
    // When rank 0 has left its address it can only wait.
    network.rendezvous.set = [&, set = network.rendezvous.set](const std::string& key,
                                                               const std::string& value) {
      set(key, value);
      other->report_failure("no such device", 60s);
    };
    CHECK_THROWS_WITH_AS(connect_gloo(network, 0, 2),
                         doctest::Contains("rank 1 failed: no such device"), PeerError);
  }
}

}  // namespace fsdptrain::comm
