// Peers that never prove that they know the token: each is closed, and nobody else notices.
#include <random>

#include <doctest/doctest.h>

#include "comm/store/wire.h"
#include "tests/comm/store/store_job.h"

namespace fsdptrain::testing {
namespace {

using namespace std::chrono_literals;
using namespace comm::store;

// A job of which ranks 0 and 1 are there, and one more connection.
struct Attack {
  Attack() : zero(job.join(0)), one(job.join(1)), peer(job.server.connect().value()) {}

  void check_refused() { job.check_refused(peer, *zero, *one); }
  void check_refused_after(std::string_view bytes) {
    job.send(peer, bytes);
    check_refused();
  }

  StoreJob job;
  std::unique_ptr<StoreJob::Member> zero;
  std::unique_ptr<StoreJob::Member> one;
  Server::PeerId peer;
};

std::string length(std::uint32_t value) {
  return WireWriter().u32(value).u8(1).u8(kVersion).take();
}

Frame frame_of(std::string_view bytes) {
  FrameReader reader(kMaxFrame);
  return reader.read(bytes).value();
}

ClientHandshake handshake(int rank, const Secret& token = job_token(), int world_size = 4,
                          std::string nonce = random_nonce()) {
  return {identity_of(rank, world_size), token, std::move(nonce)};
}

}  // namespace

TEST_SUITE("comm/store/strangers") {
  TEST_CASE("T15: nothing, then the end") {
    Attack attack;
    attack.job.server.disconnect(attack.peer);
    attack.peer = attack.job.server.connect().value();
    attack.job.clock.time += 5s;
    attack.job.server.tick();
    attack.check_refused();
  }

  TEST_CASE("T15: one byte, then nothing") {
    Attack attack;
    attack.job.send(attack.peer, "x");
    attack.job.clock.time += 4999ms;
    attack.job.server.tick();
    CHECK_FALSE(attack.job.server.is_closed(attack.peer));
    CHECK(attack.job.server.next_deadline() == attack.job.clock.time + 1ms);
    attack.job.clock.time += 1ms;
    attack.job.server.tick();
    attack.check_refused();
  }

  TEST_CASE("T15: length 0") {
    Attack().check_refused_after(length(0));
  }

  TEST_CASE("T15: length 0xffffffff") {
    Attack().check_refused_after(length(0xffffffff));
  }

  TEST_CASE("T15: length 2^31") {
    Attack().check_refused_after(length(0x80000000));
  }

  TEST_CASE("T15: a length of one more than the limit") {
    Attack().check_refused_after(length(kMaxBytesBeforeAuth - 4 + 1));
    Attack within;
    within.job.send(within.peer, length(kMaxBytesBeforeAuth - 4));
    CHECK_FALSE(within.job.server.is_closed(within.peer));
  }

  TEST_CASE("T15: a frame cut by the end") {
    Attack attack;
    const std::string hello = handshake(2).hello();
    attack.job.send(attack.peer, hello.substr(0, hello.size() - 1));
    attack.job.server.disconnect(attack.peer);
    CHECK(attack.job.server.buffered_bytes() == 0);
    CHECK_FALSE(attack.job.server.failure().has_value());
  }

  TEST_CASE("T15: a frame that comes at one byte per second") {
    Attack attack;
    const std::string hello = handshake(2).hello();
    int seconds = 0;
    for (; !attack.job.server.is_closed(attack.peer); ++seconds) {
      REQUIRE(seconds < 10);
      attack.job.send(attack.peer, hello.substr(static_cast<std::size_t>(seconds), 1));
      attack.job.clock.time += 1s;
      attack.job.server.tick();
      attack.job.drain(attack.peer);
    }
    CHECK(seconds == 5);
    attack.check_refused();
  }

  TEST_CASE("T15: HTTP") {
    Attack().check_refused_after("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }

  TEST_CASE("T15: TLS") {
    Attack().check_refused_after(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
  }

  TEST_CASE("T15: SSH") {
    Attack().check_refused_after("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
  }

  TEST_CASE("T15: a random MiB") {
    std::mt19937_64 random(15);
    std::string bytes(std::size_t{1} << 20, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random());
    }
    Attack().check_refused_after(bytes);
  }

  TEST_CASE("T15: a set before the handshake") {
    Attack attack;
    Sealer sealer(job_token());
    attack.check_refused_after(sealer.seal(
        FrameType::Set,
        encode_request({.type = FrameType::Set, .id = 1, .keys = {"stolen"}, .value = "x"})));
    CHECK_FALSE(attack.job.server.failure().has_value());
    // Nor in the place of the proof.
    Attack later;
    later.job.send(later.peer, handshake(2).hello());
    later.check_refused_after(sealer.seal(FrameType::Set, "x"));
  }

  TEST_CASE("T15: a wrong magic") {
    Attack attack;
    std::string hello = handshake(2).hello();
    hello[kHeaderBytes] ^= 1;
    attack.check_refused_after(hello);
  }

  TEST_CASE("T15: a wrong version") {
    Attack attack;
    std::string hello = handshake(2).hello();
    hello[5] = kVersion + 1;
    attack.check_refused_after(hello);
  }

  TEST_CASE("T15: a wrong role, job or rank that no world has") {
    std::string hello = handshake(2).hello();
    hello[kHeaderBytes + 8] = static_cast<char>(Role::Server);
    Attack().check_refused_after(hello);
    hello = handshake(2).hello();
    hello[kHeaderBytes + 12] = static_cast<char>(0x80);
    Attack().check_refused_after(hello);
    hello = handshake(2).hello() + "x";
    hello[0] = static_cast<char>(hello[0] + 1);
    Attack().check_refused_after(hello);
  }

  TEST_CASE("T15: a wrong token") {
    Attack attack;
    // A client that goes on although the server has proved another token.
    ClientHandshake client = handshake(2, Secret::from_bytes(std::string(32, 'w')));
    attack.job.send(attack.peer, client.hello());
    const std::string answer =
        attack.job.send(attack.peer, encode_frame(FrameType::Proof, std::string(32, 'p')));
    CHECK(answer == encode_refused(Refusal::Token));
    attack.check_refused();
    CHECK(attack.job.server.take_refusals() ==
          std::vector<std::string>{"store: a client does not know the job token"});
  }

  TEST_CASE("T15: a handshake recorded earlier and sent again") {
    Attack attack;
    ClientHandshake client = handshake(2);
    const std::string challenge = attack.job.send(attack.peer, client.hello());
    const std::string proof = client.answer(frame_of(challenge));
    // Sent now it would be right; with a new connection it is not.
    attack.job.server.disconnect(attack.peer);
    attack.peer = attack.job.server.connect().value();
    attack.job.send(attack.peer, client.hello());
    CHECK(attack.job.send(attack.peer, proof) == encode_refused(Refusal::Token));
    attack.check_refused();
  }

  TEST_CASE("T15: the challenge sent back as the proof") {
    Attack attack;
    const std::string challenge = attack.job.send(attack.peer, handshake(2).hello());
    const std::string server_proof = challenge.substr(kHeaderBytes + kNonceBytes);
    CHECK(attack.job.send(attack.peer, encode_frame(FrameType::Proof, server_proof)) ==
          encode_refused(Refusal::Token));
    attack.check_refused();
  }

  TEST_CASE("T15: a rank that the world does not have") {
    Attack attack;
    ClientHandshake client = handshake(4, job_token(), 5);
    std::string hello = client.hello();
    const std::string challenge = attack.job.send(attack.peer, hello);
    CHECK(attack.job.send(attack.peer, client.answer(frame_of(challenge))) ==
          encode_refused(Refusal::WorldSize));
    attack.check_refused();

    // One that claims the right world: no client of ours makes such a hello.
    Attack liar;
    Transcript transcript{{"job", 4, 4}, std::string(kNonceBytes, 'n'), {}};
    const std::string body = WireWriter()
                                 .raw("fsdpstor")
                                 .u8(1)
                                 .u32(4)
                                 .u32(4)
                                 .text16("job")
                                 .raw(transcript.client_nonce)
                                 .take();
    transcript.server_nonce =
        liar.job.send(liar.peer, encode_frame(FrameType::Hello, body)).substr(kHeaderBytes, 32);
    CHECK(liar.job.send(liar.peer, encode_frame(FrameType::Proof,
                                                make_proof(job_token(), Role::Rank, transcript))) ==
          encode_refused(Refusal::Rank));
    liar.check_refused();
  }

  TEST_CASE("T15: a rank that is there already") {
    Attack attack;
    ClientHandshake client = handshake(1);
    const std::string challenge = attack.job.send(attack.peer, client.hello());
    CHECK(attack.job.send(attack.peer, client.answer(frame_of(challenge))) ==
          encode_refused(Refusal::DuplicateRank));
    attack.check_refused();
  }

  TEST_CASE("T15: 500 connections at once") {
    Attack attack;
    std::vector<Server::PeerId> peers = {attack.peer};
    for (int i = 0; i < 500; ++i) {
      if (const auto peer = attack.job.server.connect()) {
        peers.push_back(*peer);
        attack.job.send(*peer, "x");
      }
    }
    // 2 x 4 + 16, and two are members.
    CHECK(peers.size() == 22);
    CHECK(attack.job.server.buffered_bytes() == 21);
    attack.job.clock.time += 5s;
    attack.job.server.tick();
    for (const Server::PeerId peer : peers) {
      attack.job.drain(peer);
    }
    for (const Server::PeerId peer : peers) {
      attack.job.check_refused(peer, *attack.zero, *attack.one);
    }
    CHECK(attack.job.join(2)->session.is_open());
    // A few are told about, and no list grows.
    CHECK(attack.job.server.take_refusals().size() == 16);
  }

  TEST_CASE("more than 256 bytes before the proof are refused, however they are cut") {
    Attack attack;
    attack.job.send(attack.peer, handshake(2).hello());
    const std::string too_much = encode_frame(FrameType::Proof, std::string(240, 'p'));
    const std::size_t left = kMaxBytesBeforeAuth - handshake(2).hello().size();
    REQUIRE(left < too_much.size());
    for (std::size_t i = 0; i < left; ++i) {
      attack.job.send(attack.peer, too_much.substr(i, 1));
    }
    CHECK_FALSE(attack.job.server.is_closed(attack.peer));
    attack.job.send(attack.peer, too_much.substr(left, 1));
    attack.check_refused();
  }
}

}  // namespace fsdptrain::testing
