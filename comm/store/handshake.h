#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/error.h"
#include "comm/store/auth.h"

// How a connection begins:
//
//   client  Hello      magic, role, rank, world size, job id, nonce
//   server  Challenge  nonce, proof of the server
//   client  Proof      proof of the client
//   server  Welcome    the first sealed frame
//
// or Refused from the server, with a reason, at any point. The client, which came to a place it was
// told of, learns first whether that is the store of its job; only holders of the token are told
// what is wrong with their rank.
namespace fsdptrain::comm::store {

// On the wire: never renumber.
enum class Refusal : std::uint8_t {
  Protocol = 1,
  Token = 2,
  Job = 3,
  WorldSize = 4,
  Rank = 5,
  DuplicateRank = 6,
  Late = 7,
  TooManyConnections = 8,
};

class RefusedError : public ProtocolError {
 public:
  RefusedError(Refusal reason, std::string message)
      : ProtocolError(std::move(message)), reason_(reason) {}
  Refusal reason() const { return reason_; }

 private:
  Refusal reason_;
};

std::string encode_refused(Refusal refusal);

class ClientHandshake {
 public:
  ClientHandshake(Identity identity, const Secret& token, std::string nonce);

  std::string hello() const;
  // The proof, in answer to the challenge. ConfigError where the server does not know the token or
  // refuses this rank, with what to do; ProtocolError if it is no challenge.
  std::string answer(const Frame& frame);
  SessionKeys keys() const { return derive_keys(token_, transcript_); }
  const Identity& identity() const { return transcript_.identity; }
  // Throws what the server says in a Refused frame.
  [[noreturn]] void throw_refusal(const Frame& frame) const;

 private:
  Transcript transcript_;
  Secret token_;
};

class ServerHandshake {
 public:
  ServerHandshake(const Secret& token, std::string nonce);

  // The challenge, in answer to the hello. What the client says is not believed yet.
  std::string challenge(const Frame& hello);
  // RefusedError unless the client knows the token and is a rank of the job.
  void check_proof(const Frame& frame, const std::string& job_id, int world_size) const;
  SessionKeys keys() const { return derive_keys(token_, transcript_); }
  int rank() const { return transcript_.identity.rank; }

 private:
  Transcript transcript_;
  Secret token_;
};

}  // namespace fsdptrain::comm::store
