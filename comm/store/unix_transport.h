#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <sys/types.h>

#include "comm/store/transport.h"

// Sockets of one host (AF_UNIX, streams). Only processes of the same user come through: the socket
// lies in a folder that nobody else may enter, and both sides ask the kernel who is at the other
// end.
namespace fsdptrain::comm::store {

// The user that the other side must be of; set in tests only.
struct UnixOptions {
  std::optional<uid_t> user{};
};

// Makes the socket `path`; it is removed at the end. The folder that holds it is made if need be.
// ConfigError if the path is too long for a socket or taken, or if others may enter the folder.
std::unique_ptr<Listener> listen_unix(const std::filesystem::path& path, UnixOptions options = {});

// Waits until somebody listens there: TimeoutError if nobody does in time, ConfigError if the path
// is too long or the listener is of another user.
std::unique_ptr<Connection> connect_unix(const std::filesystem::path& path, const Clock& clock,
                                         Nanoseconds timeout, UnixOptions options = {});

}  // namespace fsdptrain::comm::store
