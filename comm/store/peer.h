#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/store/handshake.h"
#include "comm/store/messages.h"

namespace fsdptrain::comm::store {

// What the server knows about one connection.
struct Peer {
  enum class State {
    Greeting,  // awaits the hello
    Proving,   // awaits the proof
    Member,    // is the rank that it says
    Closing,   // output is still sent, input is ignored
    Closed,
  };

  // A Get or Wait for keys that are not all there.
  struct Pending {
    FrameType type;
    std::vector<std::string> keys;
    std::size_t num_missing;
  };

  Peer(const Secret& token, std::string nonce)
      : handshake(token, std::move(nonce)), reader(kMaxBytesBeforeAuth) {}

  std::size_t buffered_bytes() const;

  State state = State::Greeting;
  // When a handshake or a closing is given up.
  std::optional<Nanoseconds> deadline{};
  std::size_t bytes_before_auth = 0;
  ServerHandshake handshake;
  FrameReader reader;
  std::optional<Opener> opener{};
  std::optional<Sealer> sealer{};
  bool said_goodbye = false;

  // Received, and not read yet because the output has to go first.
  std::string inbox{};
  std::size_t num_read = 0;
  std::string output{};
  std::size_t num_sent = 0;

  std::uint64_t last_id = 0;
  std::map<std::uint64_t, Pending> pending{};
  // Keys of pending.
  std::size_t num_waits = 0;
  // Those of pending whose keys are all there now, in that order.
  std::deque<std::uint64_t> ready{};
};

inline std::size_t Peer::buffered_bytes() const {
  std::size_t nbytes = reader.buffered_bytes() + inbox.size() + output.size();
  for (const auto& [id, wait] : pending) {
    for (const std::string& key : wait.keys) {
      nbytes += key.size();
    }
  }
  return nbytes;
}

}  // namespace fsdptrain::comm::store
