#include "comm/store/unix_connection.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

#include "runtime/base/error.h"

namespace fsdptrain::comm::store {
namespace {

// Rounded up, so that a wait never ends before its time over and over.
int milliseconds(Nanoseconds timeout) {
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  return static_cast<int>(std::clamp<std::int64_t>(count, 0, INT_MAX));
}

Transfer failed_transfer() {
  return {.ended = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ENOBUFS &&
                   errno != ENOMEM};
}

}  // namespace

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

void poll_all(std::vector<pollfd>& descriptors, Nanoseconds timeout) {
  const int status = ::poll(descriptors.data(), descriptors.size(), milliseconds(timeout));
  check<IoError>(status >= 0 || errno == EINTR, "store: waiting for {} sockets failed: {}",
                 descriptors.size(), reason_of(errno));
  if (status < 0) {
    std::ranges::for_each(descriptors, [](pollfd& entry) { entry.revents = 0; });
  }
}

Transfer UnixConnection::send(std::string_view bytes) {
  const ssize_t count = ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return count >= 0 ? Transfer{.nbytes = static_cast<std::size_t>(count)} : failed_transfer();
}

Transfer UnixConnection::receive(std::string& bytes, std::size_t max_bytes) {
  const std::size_t before = bytes.size();
  bytes.resize(before + max_bytes);
  const ssize_t count = ::recv(socket_.number(), bytes.data() + before, max_bytes, 0);
  const Transfer transfer = count > 0    ? Transfer{.nbytes = static_cast<std::size_t>(count)}
                            : count == 0 ? Transfer{.ended = true}
                                         : failed_transfer();
  bytes.resize(before + transfer.nbytes);
  return transfer;
}

void UnixConnection::wait(bool or_writable, Nanoseconds timeout) {
  std::vector<pollfd> descriptors = {entry(true, or_writable)};
  poll_all(descriptors, timeout);
}

pollfd UnixConnection::entry(bool readable, bool writable) const {
  const int events = (readable ? POLLIN : 0) | (writable ? POLLOUT : 0);
  return {.fd = socket_.number(), .events = static_cast<short>(events), .revents = 0};
}

WakeUp::WakeUp() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  check<IoError>(event_.is_open(), "store: the system gives no eventfd: {}", reason_of(errno));
}

void WakeUp::wake() const {
  const std::uint64_t one = 1;
  // Only a full counter refuses, and then the wait ends anyway.
  [[maybe_unused]] const ssize_t ignored = ::write(event_.number(), &one, sizeof one);
}

void WakeUp::take() const {
  std::uint64_t count = 0;
  if (::read(event_.number(), &count, sizeof count) < 0) {
    check<IoError>(errno == EAGAIN || errno == EINTR, "store: reading an eventfd failed: {}",
                   reason_of(errno));
  }
}

}  // namespace fsdptrain::comm::store
