#include "comm/store/server_loop.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "comm/signals.h"
#include "runtime/base/log.h"

namespace fsdptrain::comm::store {
namespace {

using namespace std::chrono_literals;

// At most so many new connections between two rounds of the old ones.
constexpr int kMaxAccepts = 64;
constexpr Nanoseconds kAcceptPause = 100ms;
// What strangers send is no reason to fill the log.
constexpr std::size_t kMaxLogged = 16;
// A connection that waits is taken in, its bytes, then its end.
constexpr int kRoundsOfAll = 3;

}  // namespace

ServerLoop::ServerLoop(std::unique_ptr<Listener> listener, ServerOptions options,
                       const Clock& clock)
    : listener_(std::move(listener)), clock_(clock), server_(std::move(options), clock) {}

void ServerLoop::step(Nanoseconds timeout) {
  std::vector<Server::PeerId> ids;
  std::vector<Interest> interests;
  for (const auto& [id, connection] : connections_) {
    ids.push_back(id);
    interests.push_back({connection.get(), server_.wants_input(id), !server_.output(id).empty()});
  }
  const Nanoseconds now = clock_.now();
  const bool accepting = now >= accept_after_;
  if (!accepting) {
    timeout = std::min(timeout, accept_after_ - now);
  }
  if (const std::optional<Nanoseconds> deadline = server_.next_deadline()) {
    timeout = std::min(timeout, std::max(*deadline - now, Nanoseconds{0}));
  }
  listener_->wait(interests, accepting, timeout);

  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (interests[i].ready && receive(ids[i], *interests[i].connection)) {
      server_.disconnect(ids[i]);
      connections_.erase(ids[i]);
    }
  }
  server_.tick();
  // What was received from one may have to be sent to any other.
  std::erase_if(connections_, [&](const auto& entry) {
    const auto& [id, connection] = entry;
    const bool has_ended = send(id, *connection) || server_.is_closed(id);
    if (has_ended) {
      server_.disconnect(id);
    }
    return has_ended;
  });
  if (accepting) {
    accept_all();
  }
}

void ServerLoop::accept_all() {
  for (int i = 0; i < kMaxAccepts; ++i) {
    Accepted accepted = listener_->accept();
    if (accepted.exhausted) {
      accept_after_ = clock_.now() + kAcceptPause;
      return;
    }
    if (!accepted.connection) {
      return;
    }
    if (const std::optional<Server::PeerId> id = server_.connect()) {
      connections_.emplace(*id, std::move(accepted.connection));
    } else {
      // As much of a farewell as the system takes at once.
      accepted.connection->send(encode_refused(Refusal::TooManyConnections));
    }
  }
}

bool ServerLoop::receive(Server::PeerId id, Connection& connection) {
  std::string bytes;
  // Without interest in its bytes, a connection is only ready when it can be sent to or has ended.
  // Bytes are then left with the system, and sending tells the end.
  if (!server_.wants_input(id)) {
    return false;
  }
  const Transfer transfer = connection.receive(bytes, Server::kMaxReceive);
  server_.receive(id, bytes);
  return transfer.ended;
}

bool ServerLoop::send(Server::PeerId id, Connection& connection) {
  while (!server_.output(id).empty()) {
    const Transfer transfer = connection.send(server_.output(id));
    server_.sent(id, transfer.nbytes);
    if (transfer.ended) {
      return true;
    }
    if (transfer.nbytes == 0) {
      break;
    }
  }
  return false;
}

ServerThread::ServerThread(std::unique_ptr<Listener> listener, ServerOptions options,
                           const Clock& clock)
    : listener_(*listener),
      logs_failure_(options.reports_ends),
      loop_(std::move(listener), std::move(options), clock),
      thread_(thread_without_signals([this] { serve(); })) {}

ServerThread::~ServerThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  listener_.wake();
  thread_.join();
}

void ServerThread::report_failure(int rank, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (!report_) {
      report_.emplace(rank, text);
    }
  }
  listener_.wake();
}

std::optional<std::string> ServerThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::vector<Attendance> ServerThread::attendance() {
  std::unique_lock lock(mutex_);
  // One more, because a round may be going on.
  rounds_left_ = kRoundsOfAll + 1;
  listener_.wake();
  answered_.wait(lock, [this] { return rounds_left_ == 0 || has_stopped_; });
  return attendance_;
}

void ServerThread::serve() {
  try {
    while (const std::optional<Nanoseconds> timeout = take_orders()) {
      loop_.step(*timeout);
      publish();
    }
  } catch (const std::exception& error) {
    // The connections end with this object; until then clients run into their deadlines.
    log_warning("store: the server has stopped: {}", error.what());
    const std::lock_guard lock(mutex_);
    failure_ = error.what();
  }
  const std::lock_guard lock(mutex_);
  has_stopped_ = true;
  answered_.notify_all();
}

std::optional<Nanoseconds> ServerThread::take_orders() {
  const std::lock_guard lock(mutex_);
  if (report_) {
    loop_.server().report_failure(report_->first, report_->second);
  }
  if (stopping_) {
    return std::nullopt;
  }
  return rounds_left_ > 0 ? 0s : Nanoseconds(1h);
}

void ServerThread::publish() {
  for (const std::string& refusal : loop_.server().take_refusals()) {
    if (num_logged_ < kMaxLogged) {
      log_warning("{}", refusal);
    }
    ++num_logged_;
  }
  const std::lock_guard lock(mutex_);
  attendance_ = loop_.server().attendance();
  if (rounds_left_ > 0 && --rounds_left_ == 0) {
    answered_.notify_all();
  }
  if (!failure_ && loop_.server().failure()) {
    failure_ = printable(*loop_.server().failure());
    if (logs_failure_) {
      log_warning("store: {}", *failure_);
    }
  }
}

}  // namespace fsdptrain::comm::store
