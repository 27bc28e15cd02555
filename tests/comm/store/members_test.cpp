// Peers that know the token and break the protocol: each is closed and has failed, and the others
// are told.
#include <doctest/doctest.h>

#include "comm/store/wire.h"
#include "tests/comm/store/store_job.h"

namespace fsdptrain::testing {
namespace {

using namespace comm::store;

// Rank 2, made by hand: it can send what no client of ours does.
struct Rogue {
  Rogue() : zero(job.join(0)), one(job.join(1)), peer(job.server.connect().value()) {
    ClientHandshake client(identity_of(2), job_token(), random_nonce());
    const std::string challenge = job.send(peer, client.hello());
    std::string_view rest = challenge;
    const Frame frame = FrameReader(kMaxFrame).read(rest).value();
    job.send(peer, client.answer(frame));
    sealer.emplace(client.keys().from_client);
    REQUIRE(job.server.ranks() == std::vector<int>{0, 1, 2});
  }

  void send(const Request& request) {
    job.send(peer, sealer->seal(request.type, encode_request(request)));
  }
  void check_failed(const std::string& text) {
    job.check_failed(peer, *zero, *one, "rank 2 failed: it broke the protocol: store: " + text);
  }

  StoreJob job;
  std::unique_ptr<StoreJob::Member> zero;
  std::unique_ptr<StoreJob::Member> one;
  Server::PeerId peer;
  std::optional<Sealer> sealer;
};

Request set(std::string key, std::string value = "x") {
  return {.type = FrameType::Set, .id = 1, .keys = {std::move(key)}, .value = std::move(value)};
}

std::string sealed_set(Sealer& sealer, std::uint64_t id) {
  Request request = set("k");
  request.id = id;
  return sealer.seal(FrameType::Set, encode_request(request));
}

}  // namespace

TEST_SUITE("comm/store/members") {
  TEST_CASE("T15: a MAC with one bit flipped") {
    Rogue rogue;
    std::string frame = sealed_set(*rogue.sealer, 1);
    frame.back() = static_cast<char>(frame.back() ^ 1);
    rogue.job.send(rogue.peer, frame);
    rogue.check_failed("the MAC of frame 0");
  }

  TEST_CASE("T15: a frame sent twice") {
    Rogue rogue;
    const std::string frame = sealed_set(*rogue.sealer, 1);
    rogue.job.send(rogue.peer, frame);
    CHECK_FALSE(rogue.job.server.is_closed(rogue.peer));
    rogue.job.send(rogue.peer, frame);
    rogue.check_failed("a frame must have sequence number 1, got 0");
  }

  TEST_CASE("T15: a frame left out") {
    Rogue rogue;
    sealed_set(*rogue.sealer, 1);
    rogue.job.send(rogue.peer, sealed_set(*rogue.sealer, 2));
    rogue.check_failed("a frame must have sequence number 0, got 1");
  }

  TEST_CASE("T15: an unknown operation") {
    Rogue rogue;
    rogue.job.send(rogue.peer, rogue.sealer->seal(static_cast<FrameType>(24), "x"));
    rogue.check_failed("the type of a frame must be known, got 24");
    Rogue server_like;
    server_like.job.send(server_like.peer, server_like.sealer->seal(FrameType::Failure, "x"));
    server_like.check_failed("a request must be of type 16 to 23, got 34");
    Rogue repeated;
    repeated.job.send(repeated.peer, repeated.sealer->seal(FrameType::Hello, "x"));
    repeated.check_failed("a request must be of type 16 to 23, got 1");
  }

  TEST_CASE("T15: keys with NUL, a newline or dots") {
    for (const std::string& key : {std::string("a\0b", 3), std::string("a\nb"),
                                   std::string("../../etc/passwd"), std::string("a/../b")}) {
      CAPTURE(key);
      Rogue rogue;
      rogue.send(set(key));
      rogue.check_failed("");
      CHECK(rogue.zero->session.failure()->find('\n') == std::string::npos);
    }
  }

  TEST_CASE("T15: a key that is too long") {
    Rogue rogue;
    rogue.send(set(std::string(kMaxKey + 1, 'k')));
    rogue.check_failed("a key must have 1 to 1024 bytes, got 1025");
  }

  TEST_CASE("T15: a value that is too big") {
    Rogue rogue;
    // The header alone decides where no frame can have the length.
    rogue.job.send(rogue.peer, WireWriter().u32(kMaxFrame - 4 + 1).u8(16).u8(kVersion).take());
    rogue.check_failed("a frame must be of length 2 to");
    CHECK(rogue.job.server.stored_bytes() == 0);
  }

  TEST_CASE("T15: 10,000 waits") {
    Rogue rogue;
    std::uint64_t id = 0;
    while (id < 10'000 && rogue.job.server.wants_input(rogue.peer)) {
      rogue.send({.type = FrameType::Get, .id = ++id, .keys = {fmt::format("never/{}", id)}});
    }
    CHECK(id == kMaxWaits + 1);
    rogue.check_failed("a rank may wait for 1024 keys, got 1024 and 1 more");
  }

  TEST_CASE("T15: an end in the middle of a reply") {
    Rogue rogue;
    rogue.job.ask(*rogue.zero, set("big", std::string(1 << 18, 'v')));
    rogue.job.server.receive(
        rogue.peer, rogue.sealer->seal(FrameType::Get, encode_request({.id = 1, .keys = {"big"}})));
    const std::size_t nbytes = rogue.job.server.output(rogue.peer).size();
    CHECK(nbytes > (1 << 18));
    rogue.job.server.sent(rogue.peer, nbytes / 2);
    rogue.job.server.disconnect(rogue.peer);
    for (StoreJob::Member* member : {rogue.zero.get(), rogue.one.get()}) {
      rogue.job.pump(*member);
      CHECK(member->session.failure() == "rank 2 failed: its connection to the store ended");
    }
    CHECK(rogue.job.server.buffered_bytes() == 0);
  }

  TEST_CASE("another rank's keys cannot be written, only read") {
    Rogue rogue;
    rogue.job.ask(*rogue.zero, set("rank/0/address", "here"));
    rogue.send({.type = FrameType::Get, .id = 1, .keys = {"rank/0/address"}});
    CHECK_FALSE(rogue.job.server.is_closed(rogue.peer));
    Request stolen = set("rank/0/address", "there");
    stolen.id = 2;
    rogue.send(stolen);
    rogue.check_failed("rank 2 may not write 'rank/0/address', the key of another rank");
  }

  TEST_CASE("the id of a request is used once, and cancelled only after that") {
    Rogue rogue;
    rogue.job.send(rogue.peer, sealed_set(*rogue.sealer, 1));
    rogue.job.send(rogue.peer, sealed_set(*rogue.sealer, 1));
    rogue.check_failed("the id of a request must be above 1, got 1");
    Rogue early;
    early.send({.type = FrameType::Cancel, .id = 1});
    early.check_failed("a request must come before its cancellation");
  }

  TEST_CASE("a client that reads nothing is not listened to, and holds one reply at most") {
    Rogue rogue;
    const std::size_t nbytes = 1 << 17;
    rogue.job.ask(*rogue.zero, set("big", std::string(nbytes, 'v')));
    std::string requests;
    for (std::uint64_t id = 1; id <= 2000; ++id) {
      requests += rogue.sealer->seal(FrameType::Get, encode_request({.id = id, .keys = {"big"}}));
    }
    std::string_view rest = requests;
    while (!rest.empty() && rogue.job.server.wants_input(rogue.peer)) {
      const std::string_view piece = rest.substr(0, Server::kMaxReceive);
      rogue.job.server.receive(rogue.peer, piece);
      rest.remove_prefix(piece.size());
      rogue.job.check_memory();
    }
    CHECK(rest.size() == requests.size() - Server::kMaxReceive);
    // Once it reads, it gets everything, and the server holds no more for that.
    std::size_t received = 0;
    while (received < 2000 * nbytes) {
      const std::size_t piece =
          std::min<std::size_t>(rogue.job.server.output(rogue.peer).size(), 100'000);
      REQUIRE(piece > 0);
      rogue.job.server.sent(rogue.peer, piece);
      received += piece;
      if (!rest.empty() && rogue.job.server.wants_input(rogue.peer)) {
        const std::string_view more = rest.substr(0, Server::kMaxReceive);
        rogue.job.server.receive(rogue.peer, more);
        rest.remove_prefix(more.size());
      }
      REQUIRE(rogue.job.server.buffered_bytes() < 3 * nbytes);
    }
  }

  TEST_CASE("a value that many wait for is held once per reader that is slow") {
    Rogue rogue;
    for (std::uint64_t id = 1; id <= kMaxWaits; ++id) {
      rogue.send({.type = FrameType::Get, .id = id, .keys = {"big"}});
    }
    const std::size_t nbytes = 1 << 19;
    rogue.job.ask(*rogue.zero, set("big", std::string(nbytes, 'v')));
    CHECK(rogue.job.server.output(rogue.peer).size() < nbytes + 100);
    rogue.job.check_memory();
  }

  TEST_CASE("a rank that leaves with a goodbye has not failed, and may come again") {
    Rogue rogue;
    rogue.send({.type = FrameType::Get, .id = 1, .keys = {"never"}});
    rogue.send({.type = FrameType::Goodbye, .id = 2});
    rogue.job.check_refused(rogue.peer, *rogue.zero, *rogue.one);
    CHECK(rogue.job.join(2)->session.is_open());
    CHECK(rogue.job.server.buffered_bytes() == 0);
  }
}

}  // namespace fsdptrain::testing
