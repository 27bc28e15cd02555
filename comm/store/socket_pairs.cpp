#include "comm/store/socket_pairs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>
#include <utility>

#include "comm/store/unix_connection.h"
#include "runtime/base/error.h"

namespace fsdptrain::comm::store {
namespace {

class PairListener final : public Listener {
 public:
  explicit PairListener(std::vector<Descriptor> servers) {
    for (Descriptor& server : servers) {
      silent_.push_back({std::move(server)});
    }
  }

  Accepted accept() override {
    std::erase_if(silent_, [](const Silent& rank) { return rank.has_ended(); });
    const auto ready =
        std::ranges::find_if(silent_, [](const Silent& rank) { return rank.has_bytes(); });
    if (ready == silent_.end()) {
      return {};
    }
    Descriptor socket = std::move(ready->socket);
    silent_.erase(ready);
    return {.connection = std::make_unique<UnixConnection>(std::move(socket))};
  }

  void wait(std::span<Interest> interests, bool accepting, Nanoseconds timeout) override {
    std::vector<pollfd> descriptors = {{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Interest& interest : interests) {
      descriptors.push_back(static_cast<UnixConnection*>(interest.connection)
                                ->entry(interest.readable, interest.writable));
    }
    for (const Silent& rank : silent_) {
      if (accepting) {
        descriptors.push_back({.fd = rank.socket.number(), .events = POLLIN, .revents = 0});
      }
    }
    poll_all(descriptors, timeout);
    if (descriptors[0].revents != 0) {
      wake_.take();
    }
    for (std::size_t i = 0; i < interests.size(); ++i) {
      interests[i].ready = descriptors[i + 1].revents != 0;
    }
  }

  void wake() override { wake_.wake(); }

 private:
  // A rank that has sent nothing yet.
  struct Silent {
    bool has_bytes() const { return peek() > 0; }
    bool has_ended() const {
      const ssize_t count = peek();
      return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    }
    ssize_t peek() const {
      char byte = 0;
      return ::recv(socket.number(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    }

    Descriptor socket;
  };

  std::vector<Silent> silent_;
  WakeUp wake_;
};

}  // namespace

SocketPair make_socket_pair(const Secret& token) {
  std::array<int, 2> sockets{};
  const bool is_made =
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets.data()) == 0;
  check<IoError>(is_made, "store: the system gives no sockets: {}", reason_of(errno));
  SocketPair pair{Descriptor(sockets[0]), Descriptor(sockets[1])};
  const ssize_t count =
      ::send(pair.server.number(), token.bytes().data(), Secret::kBytes, MSG_NOSIGNAL);
  check<IoError>(count == ssize_t{Secret::kBytes}, "store: a new socket takes no bytes: {}",
                 reason_of(errno));
  return pair;
}

std::unique_ptr<Listener> listen_at(std::vector<Descriptor> servers) {
  return std::make_unique<PairListener>(std::move(servers));
}

InheritedConnection inherit_connection(int descriptor) {
  const auto refuse = [descriptor](std::string_view why) {
    fail<ConfigError>(
        "store: descriptor {} must be the rank's connection to its launcher, but {}; a program "
        "between the launcher and this one has closed it or taken its number",
        descriptor, why);
  };
  std::array<char, Secret::kBytes> token{};
  const ssize_t count = ::recv(descriptor, token.data(), token.size(), MSG_DONTWAIT);
  if (count < 0) {
    refuse(errno == EAGAIN || errno == EWOULDBLOCK ? "its token was read before"
                                                   : reason_of(errno));
  }
  if (count != ssize_t{Secret::kBytes}) {
    refuse("there is no token in it");
  }
  Descriptor socket(descriptor);
  const bool is_private = ::fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0;
  check<IoError>(is_private, "store: descriptor {} cannot be kept from other programs: {}",
                 descriptor, reason_of(errno));
  InheritedConnection inherited{Secret::from_bytes({token.data(), token.size()}),
                                std::make_unique<UnixConnection>(std::move(socket))};
  token.fill(0);
  return inherited;
}

}  // namespace fsdptrain::comm::store
