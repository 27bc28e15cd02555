// Random schedules: clients, strangers and time take turns in an order that a seed decides, and
// bytes move in pieces of any size. What must hold is checked on every reply.
#include <set>

#include <doctest/doctest.h>

#include "comm/store/server_loop.h"
#include "tests/comm/store/store_job.h"

namespace fsdptrain::testing {
namespace {

using namespace std::chrono_literals;
using namespace comm::store;

constexpr int kWorld = 4;
constexpr std::uint64_t kNumKeys = 200;
constexpr std::size_t kMaxOutstanding = 12;

// Each is set once, to a value that the key decides.
std::string key_of(std::uint64_t key) {
  return fmt::format("once/{}", key);
}
std::string value_of(const std::string& key) {
  return std::string(key.size() * 997 % 20'000, key.back()) + key;
}

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed)
      : network_(seed),
        loop_(network_.listen(),
              {.job_id = "job",
               .token = job_token(),
               .world_size = kWorld,
               .nonce = [this] { return nonce(); }},
              network_.clock) {
    network_.jitter = true;
    network_.max_chunk = 1 + below(2000);
    network_.capacity = 1 + below(30'000);
    for (int rank = 0; rank < kWorld; ++rank) {
      clients_.push_back(
          {.session = ClientSession(
               {.identity = identity_of(rank, kWorld), .token = job_token(), .nonce = nonce()}),
           .connection = network_.connect()});
    }
  }

  void run(int num_steps) {
    while (!std::ranges::all_of(clients_, [](const Client& c) { return c.session.is_open(); })) {
      move_all();
    }
    for (int step = 0; step < num_steps; ++step) {
      act(below(100));
      REQUIRE(loop_.server().buffered_bytes() < (std::size_t{1} << 20));
    }
  }

  // Nothing failed: with every key set, every request has its reply.
  void finish() {
    for (std::uint64_t key = num_set_; key < kNumKeys; ++key) {
      set_next(clients_[0]);
    }
    settle();
    for (Client& client : clients_) {
      CHECK(client.requests.empty());
      CHECK_FALSE(client.session.failure().has_value());
    }
    // Every add was counted once.
    CHECK(sums_.size() == num_adds_);
    CHECK((sums_.empty() || *sums_.rbegin() == static_cast<std::int64_t>(num_adds_)));
    strangers_.clear();
    settle();
    CHECK(loop_.server().num_connections() == kWorld);
    CHECK(loop_.server().buffered_bytes() == 0);
  }

  // One rank fails, in one way or another: all others hear the same.
  void fail_one() {
    Client& victim = clients_[below(kWorld)];
    if (below(2) == 0) {
      victim.session.request({.type = FrameType::ReportFailure, .value = "of its own"});
      settle();
    } else {
      victim.connection.reset();
      settle();
    }
    REQUIRE(loop_.server().failure().has_value());
    for (Client& client : clients_) {
      if (client.connection) {
        CHECK(client.session.failure() == loop_.server().failure());
      }
    }
    CHECK(loop_.server().failure()->starts_with(
        fmt::format("rank {} failed: ", victim.session.rank())));
  }

  // Of everything that clients were answered, in its order.
  std::uint64_t digest() const { return digest_; }

 private:
  struct Client {
    ClientSession session;
    std::unique_ptr<Connection> connection;
    std::map<std::uint64_t, Request> requests{};
    std::optional<std::string> seen{};
  };

  std::uint64_t below(std::uint64_t end) { return network_.below(end); }
  std::string nonce() {
    std::string bytes(kNonceBytes, '\0');
    std::ranges::generate(bytes, [this] { return static_cast<char>(below(256)); });
    return bytes;
  }

  void act(std::uint64_t choice) {
    Client& client = clients_[below(kWorld)];
    if (choice < 40) {
      move(client);
    } else if (choice < 70) {
      loop_.step(0s);
    } else if (choice < 90) {
      if (client.requests.size() < kMaxOutstanding) {
        ask(client);
      }
    } else if (choice < 94) {
      if (!client.requests.empty()) {
        client.session.cancel(client.requests.begin()->first);
      }
    } else if (choice < 97) {
      network_.clock.time += std::chrono::milliseconds(below(2000));
    } else {
      strange();
    }
  }

  void ask(Client& client) {
    switch (below(6)) {
      case 0:
        set_next(client);
        break;
      case 1:
        send(client, {.type = FrameType::Get, .keys = {key_of(below(num_set_ + 10) % kNumKeys)}});
        break;
      case 2:
        send(client, {.type = FrameType::Wait,
                      .keys = {key_of(below(num_set_ + 5) % kNumKeys),
                               key_of(below(num_set_ + 5) % kNumKeys)}});
        break;
      case 3:
        ++num_adds_;
        send(client, {.type = FrameType::Add, .keys = {"n"}, .delta = 1});
        break;
      default:
        send(client, {.type = FrameType::CompareSet,
                      .keys = {"chain"},
                      .value = std::to_string(++num_links_),
                      .expected = client.seen});
    }
  }
  void set_next(Client& client) {
    if (num_set_ < kNumKeys) {
      const std::string key = key_of(num_set_++);
      send(client, {.type = FrameType::Set, .keys = {key}, .value = value_of(key)});
    }
  }
  void send(Client& client, Request request) {
    const std::uint64_t id = client.session.request(request);
    client.requests.emplace(id, std::move(request));
  }

  // Connects, sends noise or what a rank would send, and sometimes goes.
  void strange() {
    if (strangers_.size() < 8 && below(2) == 0) {
      strangers_.push_back(network_.connect());
    } else if (!strangers_.empty()) {
      const std::size_t index = below(strangers_.size());
      std::string bytes =
          below(2) == 0 ? nonce() : ClientHandshake(identity_of(1), job_token(), nonce()).hello();
      strangers_[index]->send(bytes);
      if (below(3) == 0) {
        strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
      }
    }
  }

  void move(Client& client) {
    if (!client.connection) {
      return;
    }
    client.session.sent(client.connection->send(client.session.output()).nbytes);
    std::string bytes;
    client.connection->receive(bytes, 100'000);
    client.session.receive(bytes);
    for (auto request = client.requests.begin(); request != client.requests.end();) {
      const std::optional<Reply> reply = client.session.take_reply(request->first);
      if (reply) {
        check_reply(client, request->second, *reply);
        request = client.requests.erase(request);
      } else {
        ++request;
      }
    }
  }
  void move_all() {
    loop_.step(0s);
    for (Client& client : clients_) {
      move(client);
    }
  }
  void settle() {
    std::uint64_t before = 0;
    do {
      before = network_.num_moves();
      move_all();
    } while (network_.num_moves() != before);
  }

  void check_reply(Client& client, const Request& request, const Reply& reply) {
    for (const char byte : fmt::format("{} {} {} {}", client.session.rank(), reply.id,
                                       static_cast<int>(reply.status), reply.value.value_or(""))) {
      digest_ = (digest_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    }
    const std::string& key = request.keys.at(0);
    if (reply.status == ReplyStatus::Cancelled) {
      CHECK_FALSE(reply.keys.empty());
      CHECK((request.type == FrameType::Get || request.type == FrameType::Wait));
      return;
    }
    REQUIRE(reply.status == ReplyStatus::Ok);
    if (request.type == FrameType::Get) {
      CHECK(reply.value == value_of(key));
    }
    if (request.type == FrameType::Get || request.type == FrameType::Wait) {
      // Not before somebody set them.
      for (const std::string& waited : request.keys) {
        CHECK(std::stoull(waited.substr(5)) < num_set_);
      }
    }
    if (request.type == FrameType::Add) {
      CHECK(sums_.insert(decode_number(reply.value.value()).value()).second);
    }
    if (request.type == FrameType::CompareSet) {
      if (reply.value == request.value) {
        // The values form a chain: none has two successors.
        CHECK(replaced_.insert(request.expected).second);
      }
      client.seen = reply.value;
    }
  }

  SimNetwork network_;
  ServerLoop loop_;
  std::vector<Client> clients_;
  std::vector<std::unique_ptr<Connection>> strangers_;
  std::uint64_t num_set_ = 0;
  std::uint64_t num_adds_ = 0;
  std::uint64_t num_links_ = 0;
  std::set<std::int64_t> sums_;
  std::set<std::optional<std::string>> replaced_;
  std::uint64_t digest_ = 0xcbf29ce484222325;
};

}  // namespace

TEST_SUITE("comm/store/simulation") {
  TEST_CASE("under any schedule every request is answered, once and rightly") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      CAPTURE(seed);
      Simulation simulation(seed);
      simulation.run(3000);
      simulation.finish();
    }
  }

  TEST_CASE("under any schedule a failure reaches every rank with the same words") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(seed);
      Simulation simulation(seed);
      simulation.run(static_cast<int>(10 * seed));
      simulation.fail_one();
    }
  }

  TEST_CASE("a seed decides everything") {
    std::set<std::uint64_t> digests;
    for (const std::uint64_t seed : {1, 1, 2}) {
      Simulation simulation(seed);
      simulation.run(2000);
      digests.insert(simulation.digest());
    }
    CHECK(digests.size() == 2);
  }
}

}  // namespace fsdptrain::testing
