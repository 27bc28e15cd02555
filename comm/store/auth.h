#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "comm/store/protocol.h"

// Who may talk to the store: both sides prove that they know the job's token, and every frame
// after that is sealed. Frames can be read on the way, but not made, changed, left out, repeated
// or sent back. The cryptography is OpenSSL's.
namespace fsdptrain::comm::store {

// 32 secret bytes, overwritten at the end. Never printed, and not to be put on a command line.
class Secret {
 public:
  static constexpr std::size_t kBytes = 32;

  static Secret random();
  // ConfigError unless there are kBytes.
  static Secret from_bytes(std::string_view bytes);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  std::string_view bytes() const { return {bytes_.data(), bytes_.size()}; }

 private:
  Secret() = default;

  std::array<char, kBytes> bytes_{};
};

// 32 bytes that no two handshakes share.
inline constexpr std::size_t kNonceBytes = 32;
std::string random_nonce();
// Where nonces come from: the system, or the seed of a simulation.
using NonceSource = std::function<std::string()>;

// Who a proof is of: a proof of one side is none of the other.
enum class Role : std::uint8_t { Rank = 1, Server = 2 };

// What a client says about itself.
struct Identity {
  // Names the job, so that ranks of another one are told apart; at most kMaxJobId bytes.
  std::string job_id;
  int rank = 0;
  int world_size = 1;
};

// What both sides agree on; proofs and keys are bound to all of it, and to kVersion.
struct Transcript {
  Identity identity;
  std::string client_nonce;
  std::string server_nonce;
};

std::string make_proof(const Secret& token, Role prover, const Transcript& transcript);
// In a time that does not depend on the bytes.
bool is_equal(std::string_view a, std::string_view b);

// One key per direction.
struct SessionKeys {
  Secret from_client;
  Secret from_server;
};

SessionKeys derive_keys(const Secret& token, const Transcript& transcript);

// Gives each frame of one direction its sequence number and MAC.
class Sealer {
 public:
  explicit Sealer(const Secret& key) : key_(key) {}
  std::string seal(FrameType type, std::string_view body);

 private:
  Secret key_;
  std::uint64_t next_ = 0;
};

// Takes sealed frames of one direction in their order. The body lies in `frame`; ProtocolError if
// the frame is not the next one or not by the holder of the key.
class Opener {
 public:
  explicit Opener(const Secret& key) : key_(key) {}
  std::string_view open(const Frame& frame);

 private:
  Secret key_;
  std::uint64_t next_ = 0;
};

}  // namespace fsdptrain::comm::store
