#include "comm/store/client.h"

#include <doctest/doctest.h>

#include "comm/error.h"
#include "tests/comm/store/sim_store.h"

namespace fsdptrain::testing {
namespace {

using namespace std::chrono_literals;
using namespace comm;

struct Job : SimStore {
  Job() : SimStore(3) {
    for (int rank = 0; rank < 3; ++rank) {
      stores.push_back(join(rank));
    }
  }

  Store& operator[](std::size_t rank) { return *stores[rank]; }
  // Since the job began.
  Nanoseconds time() const { return network.clock.now() - start_; }

  std::vector<std::unique_ptr<Store>> stores;

 private:
  Nanoseconds start_ = network.clock.now();
};

}  // namespace

TEST_SUITE("comm/store/client") {
  TEST_CASE("what one rank sets, the others get, byte for byte") {
    Job job;
    const std::string bytes("\0\xff\n", 3);
    job[0].set("a", bytes, 1s);
    CHECK(job[1].get("a", 1s) == bytes);
    CHECK(job[0].get("a", 1s) == bytes);
    job[2].set("a", "", 1s);
    CHECK(job[1].get("a", 1s) == "");
    CHECK(job.time() == 0s);
  }

  TEST_CASE("values of 8 MiB go through connections that take a few bytes at a time") {
    Job job;
    job.network.jitter = true;
    std::string value(store::kMaxValue, '\0');
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] = static_cast<char>(i * i >> 3);
    }
    job[0].set("big", value, 1s);
    CHECK(job[1].get("big", 1s) == value);
  }

  TEST_CASE("get waits until the key is there, and not longer") {
    Job job;
    job.later(3s, [&] { job[2].set("late", "x", 1s); });
    CHECK(job[0].get("late", 5s) == "x");
    CHECK(job.time() == 3s);
  }

  TEST_CASE("a get that nobody answers names the key and the time, and leaves nothing behind") {
    Job job;
    CHECK_THROWS_WITH_AS(job[0].get("never", 1500ms),
                         doctest::Contains("store get: 1 of 1 keys not there after 1.5 s: 'never'"),
                         TimeoutError);
    CHECK(job.time() == 1500ms);
    CHECK(job.loop.server().buffered_bytes() == 0);
    job[1].set("never", "x", 1s);
    CHECK(job[0].get("never", 1s) == "x");
  }

  TEST_CASE("wait ends when the last key is there, and a timeout names those that are not") {
    Job job;
    const std::vector<std::string> keys = {"a", "b", "c", "a"};
    job[1].set("a", "", 1s);
    job.later(1s, [&] { job[1].add("b", 1, 1s); });
    job.later(2s, [&] { job[2].compare_set("c", std::nullopt, "x", 1s); });
    CHECK_THROWS_WITH_AS(job[0].wait(keys, 1500ms),
                         doctest::Contains("store wait: 1 of 4 keys not there after 1.5 s: 'c'"),
                         TimeoutError);
    CHECK_NOTHROW(job[0].wait(keys, 5s));
    CHECK(job.time() == 2s);
    CHECK_NOTHROW(job[0].wait(keys, 0s));
  }

  TEST_CASE("adds of all ranks are counted once each") {
    Job job;
    CHECK(job[0].add("n", 1, 1s) == 1);
    CHECK(job[1].add("n", 10, 1s) == 11);
    CHECK(job[2].add("n", -12, 1s) == -1);
  }

  TEST_CASE("compare_set sets for one of several, and tells the others what is there") {
    Job job;
    CHECK(job[0].compare_set("leader", std::nullopt, "0", 1s) == "0");
    CHECK(job[1].compare_set("leader", std::nullopt, "1", 1s) == "0");
    CHECK(job[1].compare_set("leader", "0", "1", 1s) == "1");
    CHECK(job[2].compare_set("other", "0", "1", 1s) == std::nullopt);
  }

  TEST_CASE("a failure that is reported ends calls that wait, and every later one") {
    Job job;
    job.later(1s, [&] { job[2].report_failure("out of memory in layer 3\n", 1s); });
    CHECK_THROWS_WITH_AS(
        job[0].get("never", 1h),
        doctest::Contains("rank 2 failed: out of memory in layer 3\\n [comm/store/client.cpp:"),
        PeerError);
    CHECK(job.time() == 1s);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CAPTURE(rank);
      CHECK_THROWS_AS(job[rank].set("a", "", 1s), PeerError);
      CHECK_THROWS_AS(job[rank].get("a", 1s), PeerError);
      CHECK_THROWS_AS(job[rank].add("n", 1, 1s), PeerError);
      CHECK(job[rank].failure() == "rank 2 failed: out of memory in layer 3\\n");
    }
  }

  TEST_CASE("the first report wins, and later ones end quietly") {
    Job job;
    job[1].report_failure("first", 1s);
    CHECK_NOTHROW(job[2].report_failure("second", 1s));
    CHECK_NOTHROW(job[1].report_failure("third", 1s));
    CHECK(job[0].failure() == "rank 1 failed: first");
    // Also for a rank that comes later.
    job[2].close(1s);
    const auto late = job.join(2);
    CHECK(late->failure() == "rank 1 failed: first");
    CHECK_THROWS_AS(late->get("a", 1s), PeerError);
  }

  TEST_CASE("a long report is cut") {
    Job job;
    job[1].report_failure(std::string(100'000, 'x'), 1s);
    CHECK(job[0].failure() == "rank 1 failed: " + std::string(4096, 'x'));
  }

  TEST_CASE("a rank whose connection ends without a goodbye has failed") {
    Job job;
    job.later(1s, [&] { job.stores[2].reset(); });
    CHECK_THROWS_WITH_AS(job[0].get("never", 1h),
                         doctest::Contains("rank 2 failed: its connection to the store ended"),
                         PeerError);
    CHECK(job.time() == 1s);
  }

  TEST_CASE("a rank that says goodbye has not failed") {
    Job job;
    job.later(1s, [&] {
      job[2].close(1s);
      job.stores[2].reset();
    });
    job.later(2s, [&] { job[1].set("a", "x", 1s); });
    CHECK(job[0].get("a", 1h) == "x");
    CHECK(job[0].failure() == std::nullopt);
    job[1].close(1s);
    CHECK_THROWS_WITH_AS(job[1].get("a", 1s), doctest::Contains("rank 1 has closed it"),
                         MisuseError);
    CHECK_THROWS_AS(job[1].close(1s), MisuseError);
  }

  TEST_CASE("a failure found by whoever started the ranks is told like any other") {
    Job job;
    job.later(1s, [&] { job.loop.server().report_failure(2, "killed by signal 9"); });
    CHECK_THROWS_WITH_AS(job[0].get("never", 1h),
                         doctest::Contains("rank 2 failed: killed by signal 9"), PeerError);
  }

  TEST_CASE("what the server would close the connection for is refused here, by name") {
    Job job;
    CHECK_THROWS_WITH_AS(job[0].get("../a", 1s), doctest::Contains("no component of a key"),
                         MisuseError);
    CHECK_THROWS_WITH_AS(job[0].set("rank/1/a", "", 1s),
                         doctest::Contains("store set: rank 0 may not write 'rank/1/a'"),
                         MisuseError);
    CHECK_NOTHROW(job[1].set("rank/1/a", "", 1s));
    CHECK_NOTHROW(job[0].get("rank/1/a", 1s));
    const std::string big(store::kMaxValue + 1, 'v');
    CHECK_THROWS_AS(job[0].set("a", big, 1s), MisuseError);
    CHECK_THROWS_AS(job[0].compare_set("a", big, "", 1s), MisuseError);
    CHECK_THROWS_AS(job[0].wait({}, 1s), MisuseError);
    CHECK_THROWS_AS(job[0].wait(std::vector<std::string>(1025, "a"), 1s), MisuseError);
    job[0].set("text", "x", 1s);
    CHECK_THROWS_WITH_AS(job[0].add("text", 1, 1s), doctest::Contains("'text' has 1 bytes"),
                         MisuseError);
    CHECK(job[0].failure() == std::nullopt);
  }

  TEST_CASE("a rank that is refused is told why") {
    Job job;
    CHECK_THROWS_WITH_AS(job.join(1), doctest::Contains("rank 1 is connected already"),
                         ConfigError);
    Store::Options other_world = job.options(1);
    other_world.identity.world_size = 4;
    CHECK_THROWS_WITH_AS(job.connect(other_world), doctest::Contains("another world size than 4"),
                         ConfigError);
    Store::Options other_job = job.options(1);
    other_job.identity.job_id = "other";
    CHECK_THROWS_WITH_AS(job.connect(other_job), doctest::Contains("another job than 'other'"),
                         ConfigError);
    Store::Options other_token = job.options(1);
    other_token.token = store::Secret::random();
    CHECK_THROWS_WITH_AS(job.connect(other_token), doctest::Contains("the same token"),
                         ConfigError);
    CHECK(job[0].failure() == std::nullopt);
  }

  TEST_CASE("a store that does not answer is a timeout, and one that ends an error") {
    SimStore job(1);
    job.network.others = [] {};
    CHECK_THROWS_WITH_AS(job.join(0), doctest::Contains("rank 0 was not taken in after 10 s"),
                         TimeoutError);
    Job served;
    served.network.others = [] {};
    CHECK_THROWS_WITH_AS(served[0].set("a", "", 3s),
                         doctest::Contains("did not answer for 'a' within 3 s"), TimeoutError);
    CHECK(served.time() == 5s);
  }

  TEST_CASE("a store without descriptors takes ranks in when it has some again") {
    SimStore job(1);
    job.network.exhausted = true;
    job.later(3s, [&] { job.network.exhausted = false; });
    // Nothing moves while the server pauses: time has to.
    for (int i = 1; i < 500; ++i) {
      job.later(i * 10ms, [] {});
    }
    const Nanoseconds start = job.network.clock.now();
    CHECK_NOTHROW(job.join(0));
    CHECK(job.network.clock.now() - start >= 3s);
    CHECK(job.network.clock.now() - start < 3200ms);
    // Every 100 ms, not whenever the server looks, and a few when it is over.
    CHECK(job.network.num_accept_calls < 50);
  }

  TEST_CASE("connections beyond the limit are told so") {
    SimStore job(1);
    std::vector<std::unique_ptr<store::Connection>> crowd;
    for (std::size_t i = 0; i < store::max_connections(1); ++i) {
      crowd.push_back(job.network.connect());
    }
    CHECK_THROWS_WITH_AS(job.join(0), doctest::Contains("all the connections that it takes (18)"),
                         PeerError);
    crowd.clear();
    CHECK_NOTHROW(job.join(0));
  }
}

}  // namespace fsdptrain::testing
