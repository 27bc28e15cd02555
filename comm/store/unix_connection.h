#pragma once

#include <poll.h>
#include <string>
#include <utility>
#include <vector>

#include "comm/store/transport.h"
#include "runtime/base/descriptor.h"

// What transports over sockets of the system have in common.
namespace fsdptrain::comm::store {

// A stream over a socket that does not block.
class UnixConnection final : public Connection {
 public:
  explicit UnixConnection(Descriptor socket) : socket_(std::move(socket)) {}

  Transfer send(std::string_view bytes) override;
  Transfer receive(std::string& bytes, std::size_t max_bytes) override;
  void wait(bool or_writable, Nanoseconds timeout) override;

  pollfd entry(bool readable, bool writable) const;

 private:
  Descriptor socket_;
};

// The system's text for an errno.
std::string reason_of(int error);

// Waits for any of them; IoError if the system cannot. A signal ends the wait too.
void poll_all(std::vector<pollfd>& descriptors, Nanoseconds timeout);

// Ends the poll_all() of another thread that waits for descriptor(), or else its next one.
class WakeUp {
 public:
  WakeUp();

  int descriptor() const { return event_.number(); }
  void wake() const;
  // Takes back what woke.
  void take() const;

 private:
  Descriptor event_;
};

}  // namespace fsdptrain::comm::store
