#include "comm/store/auth.h"

#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/store/handshake.h"

namespace fsdptrain::comm::store {
namespace {

Secret secret(char byte) {
  return Secret::from_bytes(std::string(Secret::kBytes, byte));
}

Transcript transcript() {
  return {.identity = {.job_id = "job", .rank = 2, .world_size = 4},
          .client_nonce = std::string(kNonceBytes, 'c'),
          .server_nonce = std::string(kNonceBytes, 's')};
}

Frame frame_of(const std::string& bytes) {
  FrameReader reader(kMaxFrame);
  std::string_view rest = bytes;
  std::optional<Frame> frame = reader.read(rest);
  REQUIRE(frame.has_value());
  return std::move(*frame);
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

}  // namespace

TEST_SUITE("comm/store/auth") {
  // Computed with hmac of Python 3 over the bytes that docs/comm.md describes.
  TEST_CASE("a proof is the documented HMAC-SHA256") {
    CHECK(hex(make_proof(secret('t'), Role::Rank, transcript())) ==
          "f9c1969faded13364fd0f779d0c3dbae4eeb71af85b6ce13cae6a983fa705f35");
    CHECK(hex(make_proof(secret('t'), Role::Server, transcript())) ==
          "a485ce7bf136c0d20726fe657072085f2359a3626f7dfa7d68e81f862bd3d4eb");
  }

  TEST_CASE("a proof is bound to token, role, job, rank, world size and both nonces") {
    std::vector<std::string> proofs = {make_proof(secret('t'), Role::Rank, transcript()),
                                       make_proof(secret('u'), Role::Rank, transcript()),
                                       make_proof(secret('t'), Role::Server, transcript())};
    for (int field = 0; field < 5; ++field) {
      Transcript other = transcript();
      other.identity.job_id += field == 0 ? "x" : "";
      other.identity.rank += field == 1 ? 1 : 0;
      other.identity.world_size += field == 2 ? 1 : 0;
      other.client_nonce[31] ^= static_cast<char>(field == 3 ? 1 : 0);
      other.server_nonce[31] ^= static_cast<char>(field == 4 ? 1 : 0);
      proofs.push_back(make_proof(secret('t'), Role::Rank, other));
    }
    for (std::size_t i = 0; i < proofs.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        CAPTURE(i);
        CAPTURE(k);
        CHECK(proofs[i] != proofs[k]);
      }
    }
  }

  TEST_CASE("both directions have keys of their own, other than the token") {
    const SessionKeys keys = derive_keys(secret('t'), transcript());
    CHECK(keys.from_client.bytes() != keys.from_server.bytes());
    CHECK(keys.from_client.bytes() != secret('t').bytes());
  }

  TEST_CASE("random tokens and nonces differ, and a token has 32 bytes") {
    CHECK(Secret::random().bytes() != Secret::random().bytes());
    CHECK(random_nonce() != random_nonce());
    CHECK(random_nonce().size() == 32);
    CHECK_THROWS_WITH_AS(Secret::from_bytes("short"), doctest::Contains("32 bytes, got 5"),
                         ConfigError);
  }

  TEST_CASE("sealed frames open in their order and with every bit as it was") {
    Sealer sealer(secret('k'));
    Opener opener(secret('k'));
    const std::string first = sealer.seal(FrameType::Set, "one");
    const std::string second = sealer.seal(FrameType::Get, "");
    CHECK(opener.open(frame_of(first)) == "one");
    CHECK_THROWS_WITH_AS(opener.open(frame_of(first)),
                         doctest::Contains("sequence number 1, got 0"), ProtocolError);
    CHECK(opener.open(frame_of(second)) == "");
    CHECK_THROWS_AS(opener.open({FrameType::Set, first.substr(0, 45)}), ProtocolError);
    // Length, type and version are covered too.
    for (std::size_t bit = 0; bit < 8 * first.size(); ++bit) {
      CAPTURE(bit);
      std::string flipped = first;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      Opener fresh(secret('k'));
      CHECK_THROWS_WITH_AS(fresh.open({FrameType::Set, flipped}), doctest::Contains("MAC"),
                           ProtocolError);
    }
    Opener other(secret('l'));
    CHECK_THROWS_WITH_AS(other.open(frame_of(first)), doctest::Contains("MAC"), ProtocolError);
  }

  TEST_CASE("a handshake convinces both sides, with the same keys") {
    ClientHandshake client({.job_id = "job", .rank = 2, .world_size = 4}, secret('t'),
                           random_nonce());
    ServerHandshake server(secret('t'), random_nonce());
    const std::string challenge = server.challenge(frame_of(client.hello()));
    const std::string proof = client.answer(frame_of(challenge));
    CHECK_NOTHROW(server.check_proof(frame_of(proof), "job", 4));
    CHECK(server.rank() == 2);
    CHECK(server.keys().from_client.bytes() == client.keys().from_client.bytes());
    CHECK(server.keys().from_server.bytes() == client.keys().from_server.bytes());
    // The proof convinces of the rest, and then the rest must be right.
    CHECK_THROWS_WITH_AS(server.check_proof(frame_of(proof), "other", 4),
                         doctest::Contains("job 'job', the store of 'other'"), RefusedError);
    CHECK_THROWS_WITH_AS(server.check_proof(frame_of(proof), "job", 5),
                         doctest::Contains("world size 4, the store 5"), RefusedError);
    // The largest handshake is within what a stranger may send.
    const ClientHandshake longest({std::string(kMaxJobId, 'j'), 0, 1}, secret('t'), random_nonce());
    CHECK(longest.hello().size() + proof.size() <= kMaxBytesBeforeAuth);
  }

  TEST_CASE("a client turns away from a store that does not know its token") {
    ClientHandshake client({.job_id = "job", .rank = 2, .world_size = 4}, secret('t'),
                           random_nonce());
    ServerHandshake server(secret('u'), random_nonce());
    const std::string challenge = server.challenge(frame_of(client.hello()));
    CHECK_THROWS_WITH_AS(client.answer(frame_of(challenge)),
                         doctest::Contains("does not know the job token of rank 2"), ConfigError);
  }

  TEST_CASE("impossible identities are refused before anything is sent") {
    const auto make = [](Identity identity) {
      ClientHandshake(std::move(identity), secret('t'), random_nonce());
    };
    CHECK_THROWS_AS(make({"job", 4, 4}), ConfigError);
    CHECK_THROWS_AS(make({"job", -1, 4}), ConfigError);
    CHECK_THROWS_AS(make({"job", 0, 0}), ConfigError);
    CHECK_THROWS_AS(make({std::string(65, 'j'), 0, 1}), ConfigError);
  }
}

}  // namespace fsdptrain::comm::store
