#include "comm/store/unix_transport.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "comm/store/unix_connection.h"

namespace fsdptrain::comm::store {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kConnectPause = 5ms;

bool is_of_user(const Descriptor& socket, const UnixOptions& options) {
  ucred peer{};
  socklen_t nbytes = sizeof peer;
  return ::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &nbytes) == 0 &&
         peer.uid == options.user.value_or(::geteuid());
}

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The last byte stays zero.
  constexpr std::size_t kMaxPath = sizeof address.sun_path - 1;
  check<ConfigError>(path.native().size() <= kMaxPath,
                     "store: the path of a socket may have {} bytes, got {}: {}; choose a shorter "
                     "folder",
                     kMaxPath, path.native().size(), path.native());
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  return address;
}

Descriptor make_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  check<IoError>(socket.number() >= 0, "store: the system gives no socket: {}", reason_of(errno));
  return socket;
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

class UnixListener final : public Listener {
 public:
  UnixListener(std::filesystem::path path, UnixOptions options)
      : path_(std::move(path)), options_(options), socket_(make_socket()) {
    const sockaddr_un address = address_of(path_);
    const bool is_bound = ::bind(socket_.number(), generic(address), sizeof address) == 0;
    check<ConfigError>(is_bound,
                       "store: no socket can be made at {}: {}; another store uses the "
                       "folder, or a killed one has left it: choose another folder or remove it",
                       path_.native(), reason_of(errno));
    const bool is_listening = ::listen(socket_.number(), SOMAXCONN) == 0;
    check<IoError>(is_listening, "store: listening at {} failed: {}", path_.native(),
                   reason_of(errno));
  }
  ~UnixListener() override { ::unlink(path_.c_str()); }

  Accepted accept() override {
    while (true) {
      Descriptor socket(
          ::accept4(socket_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.number() < 0) {
        const int error = errno;
        if (error == EINTR || error == ECONNABORTED) {
          continue;
        }
        // Whatever the reason is, trying again at once would only burn a core.
        return {.connection = nullptr, .exhausted = error != EAGAIN && error != EWOULDBLOCK};
      }
      if (is_of_user(socket, options_)) {
        return {.connection = std::make_unique<UnixConnection>(std::move(socket))};
      }
    }
  }

  void wait(std::span<Interest> interests, bool accepting, Nanoseconds timeout) override {
    std::vector<pollfd> descriptors = {
        {.fd = wake_.descriptor(), .events = POLLIN, .revents = 0},
        {.fd = accepting ? socket_.number() : -1, .events = POLLIN, .revents = 0}};
    for (const Interest& interest : interests) {
      descriptors.push_back(static_cast<UnixConnection*>(interest.connection)
                                ->entry(interest.readable, interest.writable));
    }
    poll_all(descriptors, timeout);
    if (descriptors[0].revents != 0) {
      wake_.take();
    }
    for (std::size_t i = 0; i < interests.size(); ++i) {
      interests[i].ready = descriptors[i + 2].revents != 0;
    }
  }

  void wake() override { wake_.wake(); }

 private:
  std::filesystem::path path_;
  UnixOptions options_;
  Descriptor socket_;
  WakeUp wake_;
};

void check_folder(const std::filesystem::path& folder) {
  struct stat status {};
  const bool is_known = ::lstat(folder.c_str(), &status) == 0;
  check<ConfigError>(is_known, "store: the folder {} cannot be looked at: {}", folder.native(),
                     reason_of(errno));
  check<ConfigError>(S_ISDIR(status.st_mode), "store: {} must be a folder", folder.native());
  check<ConfigError>(status.st_uid == ::geteuid() && (status.st_mode & 07777) == 0700,
                     "store: the folder {} must be of user {} and mode 700, got user {} and mode "
                     "{:o}; others could take the place of the store",
                     folder.native(), ::geteuid(), status.st_uid, status.st_mode & 07777);
}

}  // namespace

std::unique_ptr<Listener> listen_unix(const std::filesystem::path& path, UnixOptions options) {
  address_of(path);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const bool is_made = ::mkdir(folder.c_str(), 0700) == 0;
  check<ConfigError>(is_made || errno == EEXIST, "store: the folder {} cannot be made: {}",
                     folder.native(), reason_of(errno));
  check_folder(folder);
  return std::make_unique<UnixListener>(path, options);
}

std::unique_ptr<Connection> connect_unix(const std::filesystem::path& path, const Clock& clock,
                                         Nanoseconds timeout, UnixOptions options) {
  const Deadline deadline(clock, timeout);
  const sockaddr_un address = address_of(path);
  while (true) {
    Descriptor socket = make_socket();
    if (::connect(socket.number(), generic(address), sizeof address) == 0) {
      check<ConfigError>(is_of_user(socket, options),
                         "store: the process that listens at {} must be of user {}", path.native(),
                         options.user.value_or(::geteuid()));
      return std::make_unique<UnixConnection>(std::move(socket));
    }
    const int error = errno;
    // Not there yet, or with more clients than it accepts at once.
    check<ConfigError>(
        error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == EINTR,
        "store: {} cannot be connected to: {}", path.native(), reason_of(error));
    check<TimeoutError>(!deadline.passed(), "store: nobody listens at {} after {}: {}",
                        path.native(), to_string(timeout), reason_of(error));
    std::this_thread::sleep_for(std::min(kConnectPause, std::max(deadline.left(), Nanoseconds{0})));
  }
}

}  // namespace fsdptrain::comm::store
