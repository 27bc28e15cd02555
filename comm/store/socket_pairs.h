#pragma once

#include <memory>
#include <vector>

#include "comm/store/auth.h"
#include "comm/store/transport.h"
#include "runtime/base/descriptor.h"

// Connections without a name: whoever starts the ranks of a host makes a pair of sockets for each,
// lets the rank inherit one end, and serves the store at the others.
namespace fsdptrain::comm::store {

struct SocketPair {
  Descriptor server;
  // Is closed in programs that this process starts; whoever starts the rank lets it through.
  Descriptor rank;
};

// The token of the job is in it, as the first that the rank reads. IoError if the system has no
// more sockets.
SocketPair make_socket_pair(const Secret& token);

// Each end is one client, from its first byte on: before that nobody waits for its handshake. One
// that closes without a byte never was a client.
std::unique_ptr<Listener> listen_at(std::vector<Descriptor> servers);

// What a rank makes of the end that it inherited; programs that it starts do not get it.
struct InheritedConnection {
  Secret token;
  std::unique_ptr<Connection> connection;
};

// ConfigError if the descriptor is no such end, or was used before: a wrapper closed it, or gave
// its number to something else.
InheritedConnection inherit_connection(int descriptor);

}  // namespace fsdptrain::comm::store
