#include "comm/store/handshake.h"

#include <fmt/format.h>
#include <utility>

#include "comm/store/wire.h"

namespace fsdptrain::comm::store {
namespace {

constexpr std::string_view kMagic = "fsdpstor";

void check_type(const Frame& frame, FrameType expected) {
  check<ProtocolError>(frame.type == expected,
                       "store: the handshake goes on with a frame of type {}, got {}",
                       static_cast<int>(expected), static_cast<int>(frame.type));
}

int read_int(WireReader& reader, const char* what) {
  const std::uint32_t value = reader.u32();
  check<ProtocolError>(value <= static_cast<std::uint32_t>(kMaxWorldSize),
                       "store: {} must be at most {}, got {}", what, kMaxWorldSize, value);
  return static_cast<int>(value);
}

}  // namespace

std::string encode_refused(Refusal refusal) {
  return encode_frame(FrameType::Refused,
                      WireWriter().u8(static_cast<std::uint8_t>(refusal)).take());
}

ClientHandshake::ClientHandshake(Identity identity, const Secret& token, std::string nonce)
    : transcript_{std::move(identity), std::move(nonce), {}}, token_(token) {
  const Identity& self = transcript_.identity;
  check<ConfigError>(self.job_id.size() <= kMaxJobId,
                     "store: the id of a job must have at most {} bytes, got {}", kMaxJobId,
                     self.job_id.size());
  check<ConfigError>(self.world_size >= 1 && self.world_size <= kMaxWorldSize,
                     "store: the world size must be 1 to {}, got {}", kMaxWorldSize,
                     self.world_size);
  check<ConfigError>(self.rank >= 0 && self.rank < self.world_size,
                     "store: a rank must be below the world size {}, got {}", self.world_size,
                     self.rank);
}

std::string ClientHandshake::hello() const {
  const Identity& self = transcript_.identity;
  return encode_frame(FrameType::Hello, WireWriter()
                                            .raw(kMagic)
                                            .u8(static_cast<std::uint8_t>(Role::Rank))
                                            .u32(static_cast<std::uint32_t>(self.rank))
                                            .u32(static_cast<std::uint32_t>(self.world_size))
                                            .text16(self.job_id)
                                            .raw(transcript_.client_nonce)
                                            .take());
}

std::string ClientHandshake::answer(const Frame& frame) {
  if (frame.type == FrameType::Refused) {
    throw_refusal(frame);
  }
  check_type(frame, FrameType::Challenge);
  WireReader reader(frame.body(), "challenge");
  transcript_.server_nonce = reader.raw(kNonceBytes);
  const std::string_view proof = reader.rest();
  check<ConfigError>(is_equal(proof, make_proof(token_, Role::Server, transcript_)),
                     "store: the store does not know the job token of rank {}: it is of another "
                     "job, or the token is; give the store and all ranks the same token",
                     identity().rank);
  return encode_frame(FrameType::Proof, make_proof(token_, Role::Rank, transcript_));
}

void ClientHandshake::throw_refusal(const Frame& frame) const {
  const Identity& self = transcript_.identity;
  const int reason = WireReader(frame.body(), "refusal").u8();
  switch (static_cast<Refusal>(reason)) {
    case Refusal::Protocol:
      break;
    case Refusal::Token:
      fail<ConfigError>(
          "store: the job token of rank {} is not that of the store; give the store "
          "and all ranks the same token",
          self.rank);
    case Refusal::Job:
      fail<ConfigError>("store: the store belongs to another job than '{}'",
                        printable(self.job_id));
    case Refusal::WorldSize:
      fail<ConfigError>("store: the store has another world size than {}, that of rank {}",
                        self.world_size, self.rank);
    case Refusal::Rank:
      fail<ConfigError>("store: the store has no rank {}", self.rank);
    case Refusal::DuplicateRank:
      fail<ConfigError>("store: rank {} is connected already; start each rank once", self.rank);
    case Refusal::Late:
      fail<TimeoutError>("store: rank {} did not finish the handshake within {} s", self.rank,
                         kAuthTimeout.count());
    case Refusal::TooManyConnections:
      fail<PeerError>(
          "store: the store has all the connections that it takes ({}); something else "
          "than the job's ranks connects to it",
          max_connections(self.world_size));
  }
  fail<ProtocolError>(
      "store: the store did not understand rank {} (reason {}); use the same build "
      "of the program for all ranks",
      self.rank, reason);
}

ServerHandshake::ServerHandshake(const Secret& token, std::string nonce)
    : transcript_{{}, {}, std::move(nonce)}, token_(token) {}

std::string ServerHandshake::challenge(const Frame& hello) {
  check_type(hello, FrameType::Hello);
  WireReader reader(hello.body(), "hello");
  check<ProtocolError>(reader.raw(kMagic.size()) == kMagic, "store: a hello must begin with '{}'",
                       kMagic);
  const int role = reader.u8();
  check<ProtocolError>(role == static_cast<int>(Role::Rank),
                       "store: a client must be a rank ({}), "
                       "got role {}",
                       static_cast<int>(Role::Rank), role);
  Identity& client = transcript_.identity;
  client.rank = read_int(reader, "a rank");
  client.world_size = read_int(reader, "the world size");
  client.job_id = reader.text16();
  check<ProtocolError>(client.job_id.size() <= kMaxJobId,
                       "store: the id of a job must have at most {} bytes, got {}", kMaxJobId,
                       client.job_id.size());
  transcript_.client_nonce = reader.raw(kNonceBytes);
  reader.finish();
  return encode_frame(FrameType::Challenge, WireWriter()
                                                .raw(transcript_.server_nonce)
                                                .raw(make_proof(token_, Role::Server, transcript_))
                                                .take());
}

void ServerHandshake::check_proof(const Frame& frame, const std::string& job_id,
                                  int world_size) const {
  check_type(frame, FrameType::Proof);
  const auto refuse = [](Refusal reason, std::string text) {
    throw RefusedError(reason, "store: " + std::move(text));
  };
  if (!is_equal(frame.body(), make_proof(token_, Role::Rank, transcript_))) {
    refuse(Refusal::Token, "a client does not know the job token");
  }
  const Identity& client = transcript_.identity;
  if (client.job_id != job_id) {
    refuse(Refusal::Job, fmt::format("a client is of job '{}', the store of '{}'",
                                     printable(client.job_id), printable(job_id)));
  }
  if (client.world_size != world_size) {
    refuse(Refusal::WorldSize,
           fmt::format("a client has world size {}, the store {}", client.world_size, world_size));
  }
  if (client.rank >= world_size) {
    refuse(Refusal::Rank,
           fmt::format("a rank must be below the world size {}, got {}", world_size, client.rank));
  }
}

}  // namespace fsdptrain::comm::store
