#include "comm/store/client.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace fsdptrain::comm {

using store::FrameType;
using store::Reply;
using store::ReplyStatus;
using store::Request;

namespace {

using namespace std::chrono_literals;

// How long a store may take to confirm that a request was given up.
constexpr Nanoseconds kCancelTimeout = 2s;
// A thread that does not wait for the connection itself looks again after so long.
constexpr Nanoseconds kLook = 20ms;
constexpr std::size_t kMaxReceive = std::size_t{256} << 10;
constexpr std::size_t kMaxNamed = 8;

const char* name_of(FrameType type) {
  return type == FrameType::Set          ? "set"
         : type == FrameType::Get        ? "get"
         : type == FrameType::Add        ? "add"
         : type == FrameType::Wait       ? "wait"
         : type == FrameType::CompareSet ? "compare_set"
                                         : "report_failure";
}

// 'a', 'b' and 7 more
std::string listed(const std::vector<std::string>& keys) {
  std::string text;
  for (std::size_t i = 0; i < std::min(keys.size(), kMaxNamed); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", keys[i]);
  }
  if (keys.size() > kMaxNamed) {
    text += fmt::format(" and {} more", keys.size() - kMaxNamed);
  }
  return text;
}

// What the server would close the connection for.
void check_request(const Request& request, int rank) {
  const char* name = name_of(request.type);
  check<MisuseError>(request.type != FrameType::Wait ||
                         (!request.keys.empty() && request.keys.size() <= store::kMaxWaits),
                     "store {}: 1 to {} keys can be waited for, got {}", name, store::kMaxWaits,
                     request.keys.size());
  const bool writes = request.type != FrameType::Get && request.type != FrameType::Wait;
  for (const std::string& key : request.keys) {
    try {
      store::check_key(key);
    } catch (const ProtocolError& error) {
      throw MisuseError(error.what());
    }
    check<MisuseError>(!writes || store::may_write(rank, key),
                       "store {}: rank {} may not write '{}', the key of another rank", name, rank,
                       key);
  }
  const std::size_t nbytes =
      std::max(request.value.size(), request.expected ? request.expected->size() : 0);
  check<MisuseError>(nbytes <= store::kMaxValue, "store {}: a value may have {} bytes, got {}",
                     name, store::kMaxValue, nbytes);
}

}  // namespace

Store::Store(std::unique_ptr<store::Connection> connection, Options options, Nanoseconds timeout)
    : clock_(options.clock),
      connection_(std::move(connection)),
      session_({.identity = std::move(options.identity), .token = options.token}) {
  std::unique_lock lock(mutex_);
  const Deadline deadline(clock_, timeout);
  check<TimeoutError>(drive(lock, deadline, [&] { return session_.is_open(); }),
                      "store: rank {} was not taken in after {}", session_.rank(),
                      to_string(timeout));
}

void Store::set(std::string_view key, std::string_view value, Nanoseconds timeout) {
  call({.type = FrameType::Set, .keys = {std::string(key)}, .value = std::string(value)}, timeout);
}

std::string Store::get(std::string_view key, Nanoseconds timeout) {
  return call({.type = FrameType::Get, .keys = {std::string(key)}}, timeout).value.value_or("");
}

void Store::wait(std::span<const std::string> keys, Nanoseconds timeout) {
  call({.type = FrameType::Wait, .keys = {keys.begin(), keys.end()}}, timeout);
}

std::int64_t Store::add(std::string_view key, std::int64_t delta, Nanoseconds timeout) {
  const Reply reply =
      call({.type = FrameType::Add, .keys = {std::string(key)}, .delta = delta}, timeout);
  const std::optional<std::int64_t> sum = store::decode_number(reply.value.value_or(""));
  check<ProtocolError>(sum.has_value(), "store add: '{}': the reply must be a number", key);
  return *sum;
}

std::optional<std::string> Store::compare_set(std::string_view key,
                                              const std::optional<std::string>& expected,
                                              std::string_view desired, Nanoseconds timeout) {
  return call({.type = FrameType::CompareSet,
               .keys = {std::string(key)},
               .value = std::string(desired),
               .expected = expected},
              timeout)
      .value;
}

Reply Store::call(Request request, Nanoseconds timeout) {
  check_request(request, session_.rank());
  const FrameType type = request.type;
  const std::vector<std::string> keys = request.keys;
  const std::size_t num_waits = type == FrameType::Get || type == FrameType::Wait ? keys.size() : 0;
  const Deadline deadline(clock_, timeout);
  std::unique_lock lock(mutex_);
  check_usable();
  check<MisuseError>(num_waits_ + num_waits <= store::kMaxWaits,
                     "store {}: a rank may wait for {} keys, got {} and {} more", name_of(type),
                     store::kMaxWaits, num_waits_, num_waits);
  num_waits_ += num_waits;
  const std::uint64_t id = session_.request(std::move(request));
  const auto is_done = [&] { return session_.has_reply(id) || session_.failure(); };
  bool is_confirmed = drive(lock, deadline, is_done);
  if (!is_confirmed) {
    session_.cancel(id);
    is_confirmed = drive(lock, Deadline(clock_, kCancelTimeout), is_done);
  }
  num_waits_ -= num_waits;
  check_usable();
  std::optional<Reply> reply = session_.take_reply(id);
  session_.forget(id);
  lock.unlock();
  check<TimeoutError>(is_confirmed, "store {}: the store did not answer for {} within {}",
                      name_of(type), listed(keys), to_string(timeout));
  check<TimeoutError>(reply->status != ReplyStatus::Cancelled,
                      "store {}: {} of {} keys not there after {}: {}", name_of(type),
                      reply->keys.size(), keys.size(), to_string(timeout), listed(reply->keys));
  check<MisuseError>(reply->status != ReplyStatus::Rejected, "{}",
                     printable(reply->value.value_or("")));
  return std::move(*reply);
}

void Store::report_failure(std::string_view text, Nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  if (session_.failure()) {
    return;
  }
  check_usable();
  const Deadline deadline(clock_, timeout);
  session_.request({.type = FrameType::ReportFailure,
                    .value = std::string(text.substr(0, store::kMaxFailureText))});
  check<TimeoutError>(drive(lock, deadline, [&] { return session_.failure().has_value(); }),
                      "store report_failure: the store did not answer within {}",
                      to_string(timeout));
}

std::optional<std::string> Store::failure() {
  const std::unique_lock lock(mutex_);
  // Another thread that waits receives what there is.
  if (!is_waited_for_ && broken_.empty() && !is_closed_) {
    receive();
  }
  return session_.failure();
}

void Store::close(Nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  check<MisuseError>(!is_closed_, "store: rank {} has closed it already", session_.rank());
  check<PeerError>(broken_.empty(), "{}", broken_);
  is_closed_ = true;
  const Deadline deadline(clock_, timeout);
  session_.request({.type = FrameType::Goodbye});
  check<TimeoutError>(drive(lock, deadline, [&] { return session_.has_left(); }),
                      "store: no farewell to rank {} after {}", session_.rank(),
                      to_string(timeout));
}

template <class Done>
bool Store::drive(std::unique_lock<std::mutex>& lock, const Deadline& deadline, Done done) {
  send();
  while (!done()) {
    check<PeerError>(broken_.empty(), "{}", broken_);
    // By another thread, while this one waited.
    check<MisuseError>(!session_.has_left(), "store: rank {} has closed it", session_.rank());
    if (deadline.passed()) {
      return false;
    }
    if (is_waited_for_) {
      changed_.wait_for(lock, std::min(deadline.left(), kLook));
    } else {
      wait_for_bytes(lock, deadline.left());
      receive();
    }
    send();
  }
  return true;
}

void Store::wait_for_bytes(std::unique_lock<std::mutex>& lock, Nanoseconds timeout) {
  is_waited_for_ = true;
  const bool or_writable = !session_.output().empty();
  lock.unlock();
  std::string error;
  try {
    connection_->wait(or_writable, timeout);
  } catch (const Error& failed) {
    error = failed.what();
  }
  lock.lock();
  is_waited_for_ = false;
  if (!error.empty()) {
    broken_ = error;
  }
  // One of the others waits next, or finds what this one received.
  changed_.notify_all();
}

void Store::send() {
  while (!session_.output().empty()) {
    const store::Transfer transfer = connection_->send(session_.output());
    session_.sent(transfer.nbytes);
    // If the connection has ended, receive() says so, behind the last words of the store.
    if (transfer.nbytes == 0) {
      return;
    }
  }
}

void Store::receive() {
  std::string bytes;
  const store::Transfer transfer = connection_->receive(bytes, kMaxReceive);
  try {
    session_.receive(bytes);
  } catch (const Error& error) {
    broken_ = error.what();
    throw;
  }
  if (transfer.ended && !session_.has_left()) {
    broken_ = fmt::format("store: the connection of rank {} to the store ended", session_.rank());
  }
}

void Store::check_usable() const {
  check<PeerError>(!session_.failure(), "{}", session_.failure().value_or(""));
  check<MisuseError>(!is_closed_, "store: rank {} has closed it", session_.rank());
  check<PeerError>(broken_.empty(), "{}", broken_);
}

}  // namespace fsdptrain::comm
