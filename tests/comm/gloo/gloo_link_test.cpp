#include "comm/gloo/gloo_link.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/gloo/mesh.h"
#include "comm/gloo/message.h"
#include "comm/process_group.h"
#include "comm/world.h"
#include "tests/support/rank_backends.h"

// What goes wrong between hosts. The operations themselves: collectives_test.cpp.
namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;
using testing::Backend;

template <class E>
std::string text_of(const std::exception_ptr& error) {
  REQUIRE(error);
  try {
    std::rethrow_exception(error);
  } catch (const E& expected) {
    return expected.what();
  } catch (const std::exception& other) {
    return std::string("another type: ") + other.what();
  }
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::exception_ptr> try_on_gloo(int num_ranks, const std::function<void(World&)>& body,
                                            Nanoseconds timeout = 20s) {
  ThreadRanks ranks = testing::thread_ranks(Backend::Gloo, num_ranks);
  ranks.world.timeout = timeout;
  return try_ranks(ranks, body);
}

Tensor zeros(std::int64_t numel) {
  return Tensor::zeros({numel});
}

// How far rank 0 has come, for its peer to wait for.
struct Stages {
  std::atomic<bool> is_connected = false;
  std::atomic<bool> is_done = false;
};

void reach(std::atomic<bool>& stage) {
  stage = true;
  stage.notify_all();
}

// Runs `peer` on the bare connections of rank 1, beside rank 0 with the link of a world of two.
void with_bare_peer(const std::function<void(Mesh&, const Stages&)>& peer,
                    const std::function<void(GlooLink&)>& body) {
  Stages stages;
  const Network network = testing::loopback();
  const auto connect = [&](int rank) {
    return std::make_unique<Mesh>(make_device(network.address), network.rendezvous,
                                  Mesh::Options{rank, 2, "test", network.timeout});
  };
  const std::jthread other([&] {
    const auto mesh = connect(1);
    peer(*mesh, stages);
  });
  struct Ending {
    Stages& stages;
    ~Ending() {
      reach(stages.is_connected);
      reach(stages.is_done);
    }
  } const ending{stages};
  GlooLink link(connect(0));
  reach(stages.is_connected);
  body(link);
  // Before the link waits for the peer's goodbye.
  reach(stages.is_done);
}

// As a rank that waits for its peers would.
void rest_until_failure(Link& link) {
  const Deadline deadline(monotonic_clock(), 10s);
  while (!deadline.passed()) {
    link.rest(link.changes(), 20ms);
  }
}

}  // namespace

TEST_SUITE("comm/gloo_link") {
  TEST_CASE("a rank that leaves is named by those who wait for it") {
    const auto errors = try_on_gloo(3, [](World& world) {
      if (world.rank() != 2) {
        world.group().issue(barrier()).wait();
      }
    });
    for (const int rank : {0, 1}) {
      const std::string text = text_of<PeerError>(errors[static_cast<std::size_t>(rank)]);
      CAPTURE(text);
      CHECK(contains(text, "rank 2 left before the end of barrier"));
    }
    CHECK_FALSE(errors[2]);
  }

  TEST_CASE("what a rank sent before it left still arrives") {
    // With two offers each these are more messages than the peer takes at once.
    constexpr std::uint64_t kNumPosted = Link::kMaxOpen;
    const Network network = testing::loopback();
    std::jthread other([&] {
      Links links = connect_gloo(network, 1, 2);
      for (std::uint64_t sequence = 0; sequence < kNumPosted; ++sequence) {
        const Meeting meeting{0, sequence};
        links.training->post(meeting, Frame{});
        links.training->offer(std::span(&meeting, 1), 0, std::as_bytes(std::span(&meeting, 1)));
        links.training->offer(std::span(&meeting, 1), 1, std::as_bytes(std::span(&meeting, 1)));
      }
      links.training.reset();
    });
    const Links links = connect_gloo(network, 0, 2);
    Link& link = *links.training;
    const Deadline deadline(monotonic_clock(), 10s);
    while (link.presence(1) == Presence::Here && !deadline.passed()) {
      link.rest(link.changes(), 20ms);
    }
    CHECK(link.presence(1) == Presence::Left);
    CHECK(link.peek({1, kNumPosted - 1}, 1, 0, sizeof(Meeting)).size() == sizeof(Meeting));
  }

  TEST_CASE("a peer that posts more than may be open is refused") {
    std::string text;
    const Network network = testing::loopback();
    std::jthread other([&] {
      const Links links = connect_gloo(network, 1, 2);
      for (std::uint64_t sequence = 0; sequence <= Link::kMaxOpen; ++sequence) {
        links.training->post({0, sequence}, Frame{});
      }
    });
    const Links links = connect_gloo(network, 0, 2);
    CHECK_THROWS_WITH_AS(rest_until_failure(*links.training),
                         doctest::Contains("rank 1 sent what fits nothing here (kind 0, "
                                           "operation 32"),
                         PeerError);
  }

  TEST_CASE("what is offered can be read piece by piece") {
    for (const std::size_t nbytes : {std::size_t{100}, std::size_t{3} << 20}) {
      CAPTURE(nbytes);
      const Network network = testing::loopback();
      std::vector<std::byte> bytes(nbytes);
      for (std::size_t i = 0; i < nbytes; ++i) {
        bytes[i] = static_cast<std::byte>(i * 31 / 7);
      }
      std::jthread other([&] {
        const Links links = connect_gloo(network, 1, 2);
        const Meeting meeting{0, 0};
        links.training->post(meeting, Frame{});
        links.training->offer(std::span(&meeting, 1), 1, bytes);
        while (!links.training->finished(meeting)) {
          links.training->rest(links.training->changes(), 20ms);
        }
      });
      const Links links = connect_gloo(network, 0, 2);
      Link& link = *links.training;
      const Meeting meeting{1, 0};
      link.post(meeting, Frame{});
      std::vector<std::byte> read;
      while (read.size() < nbytes) {
        // No two pieces begin at the same place of a chunk.
        const auto piece = link.peek(meeting, 1, read.size(), nbytes / 10 + 7);
        read.insert(read.end(), piece.begin(), piece.end());
        if (piece.empty()) {
          link.rest(link.changes(), 1ms);
        } else {
          link.consume(meeting, 1, read.size());
        }
      }
      CHECK(read == bytes);
      CHECK_THROWS_WITH_AS(link.peek(meeting, 1, nbytes, 1),
                           doctest::Contains(nbytes == 100 ? "rank 1 offers 100 bytes"
                                                           : "rank 1 offers 3145728 bytes"),
                           PeerError);
      link.finish(meeting);
    }
  }

  TEST_CASE("all ranks end with the first line of the one that failed, however long") {
    const std::string reason = "no space left: " + std::string(3000, 'x') + " end";
    const auto errors = try_on_gloo(3, [&](World& world) {
      if (world.rank() == 1) {
        throw std::runtime_error(reason + "\nand more of it");
      }
      world.group().issue(barrier()).wait();
    });
    for (const int rank : {0, 2}) {
      const std::string text = text_of<PeerError>(errors[static_cast<std::size_t>(rank)]);
      CAPTURE(text);
      CHECK(contains(text, "rank 1 failed: " + reason));
      CHECK_FALSE(contains(text, "more of it"));
    }
  }

  TEST_CASE("operations, counts and tags that differ are refused on both sides") {
    const auto mismatch = [](const Operation& first, const Operation& second) {
      const auto errors = try_on_gloo(
          2, [&](World& world) { world.group().issue(world.rank() == 0 ? first : second).wait(); });
      std::string all;
      for (const std::exception_ptr& error : errors) {
        REQUIRE(error);
        try {
          std::rethrow_exception(error);
        } catch (const CommError& error_of_rank) {
          all += error_of_rank.what();
        }
      }
      return all;
    };
    const Tensor small = zeros(1000);
    const Tensor large = zeros(2000);
    const std::string op =
        mismatch(all_gather(large, small), reduce_scatter(zeros(1000), zeros(2000)));
    CAPTURE(op);
    // Whoever sees it first tells it, itself first.
    CHECK(contains(op, "all_gather on rank 0"));
    CHECK(contains(op, "reduce_scatter on rank 1"));
    const std::string count = mismatch(send(small, 1), recv(large, 0));
    CAPTURE(count);
    CHECK(contains(count, "count: "));
    CHECK(contains(count, "1000 on rank 0"));
    CHECK(contains(count, "2000 on rank 1"));
    const std::string tag = mismatch(barrier({.group = 1}), barrier({.group = 2}));
    CAPTURE(tag);
    CHECK(contains(tag, "tag: "));
    CHECK(contains(tag, "group 1 invocation 0 on rank 0"));
    CHECK(contains(tag, "group 2 invocation 0 on rank 1"));
  }

  TEST_CASE("a timeout names the rank that has not arrived, and where it is") {
    std::latch timed_out(2);
    const auto errors = try_on_gloo(
        3,
        [&](World& world) {
          if (world.rank() == 1) {
            timed_out.wait();
            return;
          }
          try {
            world.group().issue(all_reduce(zeros(10))).wait();
          } catch (const CommError&) {
            timed_out.count_down();
            throw;
          }
        },
        300ms);
    std::string all;
    for (const int rank : {0, 2}) {
      const std::exception_ptr error = errors[static_cast<std::size_t>(rank)];
      REQUIRE(error);
      try {
        std::rethrow_exception(error);
      } catch (const CommError& error_of_rank) {
        all += error_of_rank.what();
      }
    }
    CAPTURE(all);
    CHECK(contains(all, "did not end in 0.3 s, missing: rank 1"));
    CHECK(contains(all, "rank 1 ended create_group"));
    CHECK(contains(all, "for rank 1"));
  }

  TEST_CASE("a connection that ends without a word is a dead rank") {
    // Not while it connects: gloo itself ends the program there.
    with_bare_peer([](Mesh&, const Stages& stages) { stages.is_connected.wait(false); },
                   [](GlooLink& link) {
                     const Deadline deadline(monotonic_clock(), 10s);
                     while (link.presence(1) == Presence::Here && !deadline.passed()) {
                       link.rest(link.changes(), 20ms);
                     }
                     CHECK(link.presence(1) == Presence::Dead);
                     // Nothing to write to, and no signal that ends the program.
                     link.post({1, 0}, Frame{});
                   });
  }

  TEST_CASE("messages that fit nothing are refused by name") {
    const auto refusal = [](const Message& message) {
      std::string text;
      with_bare_peer(
          [&](Mesh& mesh, const Stages& stages) {
            Region region(mesh, std::as_bytes(std::span(&message, 1)));
            region.send(0, 0, 0, sizeof(Message));
            stages.is_done.wait(false);
          },
          [&](GlooLink& link) {
            try {
              rest_until_failure(link);
            } catch (const PeerError& error) {
              text = error.what();
            }
          });
      return text;
    };
    Message message;
    message.kind = static_cast<Message::Kind>(77);
    CHECK(contains(refusal(message), "rank 1 sent a message of unknown kind 77"));
    message.kind = Message::Kind::Post;
    message.sequence = 5;
    CHECK(contains(refusal(message), "operation 5"));
    message.sequence = 0;
    for (const auto kind : {Message::Kind::Offer, Message::Kind::Finish}) {
      message.kind = kind;
      CHECK(contains(refusal(message), "rank 1 sent what fits nothing here"));
    }
    message.kind = Message::Kind::Failure;
    message.num_bytes = Message::kBytes + 1;
    message.nbytes = 4096;
    CHECK(contains(refusal(message), "513 bytes"));
  }

  TEST_CASE("a rank that does not come is named") {
    Network network = testing::loopback();
    network.timeout = 100ms;
    CHECK_THROWS_WITH_AS(connect_gloo(network, 0, 2),
                         doctest::Contains("rank 0 waits for rank 1, which has not come"),
                         TimeoutError);
  }

  TEST_CASE("no rank goes on before all are connected") {
    Network network = testing::loopback();
    Network other_network = network;
    other_network.rendezvous.set = [set = network.rendezvous.set](const std::string& key,
                                                                  const std::string& value) {
      if (!key.ends_with("connected")) {
        set(key, value);
      }
    };
    const std::jthread other([&] { const Links links = connect_gloo(other_network, 1, 2); });
    network.timeout = 1s;
    CHECK_THROWS_WITH_AS(connect_gloo(network, 0, 2),
                         doctest::Contains("rank 0 waits for rank 1, which has not connected"),
                         TimeoutError);
  }

  TEST_CASE("only one address of this host is listened at") {
    CHECK_THROWS_WITH_AS(make_device({}), doctest::Contains("not neither"), ConfigError);
    CHECK_THROWS_WITH_AS(make_device({"127.0.0.1", "lo"}), doctest::Contains("not both"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(make_device({"0.0.0.0", ""}), doctest::Contains("all interfaces"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(make_device({"", "no-such-interface"}),
                         doctest::Contains("'no-such-interface' is no address or interface"),
                         ConfigError);
    CHECK(make_device({"", "lo"}) != nullptr);
  }
}

}  // namespace fsdptrain::comm
