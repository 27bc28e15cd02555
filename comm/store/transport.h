#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/clock.h"

// Streams of bytes between a store and its clients, behind which sockets of one host or of several,
// or a simulated network, can be. Nothing but wait() blocks.
namespace fsdptrain::comm::store {

// What one attempt to move bytes did. Nothing moved and not ended: it would have blocked.
struct Transfer {
  std::size_t nbytes = 0;
  // The other side has closed, or the connection is broken. Bytes may have come before.
  bool ended = false;
};

// One end of a stream, closed with its owner. Used by one thread at a time, except that one may
// wait while another sends.
class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Takes bytes from the front of `bytes`.
  virtual Transfer send(std::string_view bytes) = 0;
  // Appends at most `max_bytes` to `bytes`.
  virtual Transfer receive(std::string& bytes, std::size_t max_bytes) = 0;
  // Returns when there is something to receive, when `or_writable` and bytes can be sent, when the
  // connection has ended, or after `timeout`; sometimes earlier.
  virtual void wait(bool or_writable, Nanoseconds timeout) = 0;

 protected:
  Connection() = default;
};

// What a server waits for on one connection; its end is always waited for.
struct Interest {
  Connection* connection;
  bool readable;
  bool writable;
  // Set by the wait where it happened.
  bool ready = false;
};

struct Accepted {
  std::unique_ptr<Connection> connection;
  // The system has no descriptors or memory for one more; those who wait stay in the queue.
  bool exhausted = false;
};

// Where clients arrive. One thread, except for wake().
class Listener {
 public:
  virtual ~Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The next client; no connection if there is none now.
  virtual Accepted accept() = 0;
  // Returns when there may be a client to accept (unless `accepting` is false), something on a
  // connection has happened, after wake(), or after `timeout`; sometimes earlier.
  virtual void wait(std::span<Interest> interests, bool accepting, Nanoseconds timeout) = 0;
  // From any thread: ends the wait that is going on, or else the next.
  virtual void wake() = 0;

 protected:
  Listener() = default;
};

}  // namespace fsdptrain::comm::store
