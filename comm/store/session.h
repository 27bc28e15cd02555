#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "comm/store/handshake.h"
#include "comm/store/messages.h"

namespace fsdptrain::comm::store {

struct ClientOptions {
  Identity identity;
  Secret token;
  std::string nonce = random_nonce();
};

// A client as a state machine: requests and bytes in, bytes and replies out. One thread at a time.
class ClientSession {
 public:
  // ConfigError if the identity is impossible.
  explicit ClientSession(ClientOptions options);

  // Whether the store has taken this rank in, and it has not said goodbye.
  bool is_open() const { return state_ == State::Open; }
  // Goodbye was answered.
  bool has_left() const { return state_ == State::Left; }

  // Bytes of the store. ProtocolError or ConfigError where they are not what they must be; the
  // session is of no use then.
  void receive(std::string_view bytes);
  // To be sent next, valid until the next call.
  std::string_view output() const { return std::string_view(output_).substr(num_sent_); }
  void sent(std::size_t nbytes);

  // Returns the id of the request. REQUIRES: is_open().
  std::uint64_t request(Request request);
  // The reply to a request that is taken will be Cancelled, unless it is on its way already.
  void cancel(std::uint64_t id);
  // Its reply, once; nothing before it is there.
  std::optional<Reply> take_reply(std::uint64_t id);
  bool has_reply(std::uint64_t id) const;
  // A reply that comes later is dropped.
  void forget(std::uint64_t id);

  // "rank 3 failed: ...", printable, once the store has said so: no request is answered any more.
  const std::optional<std::string>& failure() const { return failure_; }
  int rank() const { return handshake_.identity().rank; }

 private:
  enum class State { Greeting, Proving, Open, Left };

  void read_frame(const Frame& frame);
  void read_sealed(const Frame& frame);

  ClientHandshake handshake_;
  FrameReader reader_;
  State state_ = State::Greeting;
  std::optional<Opener> opener_;
  std::optional<Sealer> sealer_;
  std::string output_;
  std::size_t num_sent_ = 0;
  std::uint64_t last_id_ = 0;
  // Every request that was not taken or forgotten, and its reply once it is there.
  std::map<std::uint64_t, std::optional<Reply>> requests_;
  std::optional<std::string> failure_;
};

}  // namespace fsdptrain::comm::store
