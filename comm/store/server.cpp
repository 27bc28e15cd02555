#include "comm/store/server.h"

#include <fmt/format.h>
#include <utility>

#include "comm/store/wire.h"

namespace fsdptrain::comm::store {
namespace {

constexpr std::size_t kMaxRefusals = 16;

// Unlike clear(), gives the memory back.
void release(std::string& bytes) {
  std::string().swap(bytes);
}

}  // namespace

Server::Server(ServerOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock) {
  check<ConfigError>(options_.world_size >= 1 && options_.world_size <= kMaxWorldSize,
                     "store: the world size must be 1 to {}, got {}", kMaxWorldSize,
                     options_.world_size);
  check<ConfigError>(options_.job_id.size() <= kMaxJobId,
                     "store: the id of a job must have at most {} bytes, got {}", kMaxJobId,
                     options_.job_id.size());
  attendance_.resize(static_cast<std::size_t>(options_.world_size), Attendance::Never);
}

std::optional<Server::PeerId> Server::connect() {
  if (peers_.size() >= max_connections(options_.world_size)) {
    return std::nullopt;
  }
  const PeerId id = next_peer_++;
  Peer& peer = peers_.try_emplace(id, options_.token, options_.nonce()).first->second;
  peer.deadline = clock_.now() + kAuthTimeout;
  return id;
}

void Server::receive(PeerId id, std::string_view bytes) {
  check(bytes.size() <= kMaxReceive, "store: at most {} bytes can be received at once, got {}",
        kMaxReceive, bytes.size());
  Peer& peer = peers_.at(id);
  if (peer.state < Peer::State::Closing) {
    peer.inbox += bytes;
    busy_.insert(id);
    work();
  }
}

bool Server::wants_input(PeerId id) const {
  const Peer& peer = peers_.at(id);
  return peer.state < Peer::State::Closing && peer.inbox.empty() && peer.ready.empty() &&
         peer.output.size() - peer.num_sent < kMaxOutput;
}

std::string_view Server::output(PeerId id) const {
  const Peer& peer = peers_.at(id);
  return std::string_view(peer.output).substr(peer.num_sent);
}

void Server::sent(PeerId id, std::size_t nbytes) {
  Peer& peer = peers_.at(id);
  peer.num_sent += nbytes;
  if (peer.num_sent == peer.output.size()) {
    release(peer.output);
    peer.num_sent = 0;
    if (peer.state == Peer::State::Closing) {
      peer.state = Peer::State::Closed;
    }
  } else if (peer.num_sent >= kMaxOutput && peer.num_sent >= peer.output.size() / 2) {
    // A peer that never catches up must not keep what it has got.
    peer.output.erase(0, peer.num_sent);
    peer.num_sent = 0;
  }
  busy_.insert(id);
  work();
}

bool Server::is_closed(PeerId id) const {
  return peers_.at(id).state == Peer::State::Closed;
}

void Server::disconnect(PeerId id) {
  leave(id, peers_.at(id), "its connection to the store ended", true);
  busy_.erase(id);
  peers_.erase(id);
  work();
}

std::optional<Nanoseconds> Server::next_deadline() const {
  std::optional<Nanoseconds> next;
  for (const auto& [id, peer] : peers_) {
    if (peer.deadline && (!next || *peer.deadline < *next)) {
      next = peer.deadline;
    }
  }
  return next;
}

void Server::tick() {
  for (auto& [id, peer] : peers_) {
    if (!peer.deadline || clock_.now() < *peer.deadline) {
      continue;
    }
    if (peer.state == Peer::State::Closing) {
      peer.state = Peer::State::Closed;
      peer.deadline.reset();
    } else {
      refuse(id, peer, Refusal::Late,
             fmt::format("no handshake within {} s", kAuthTimeout.count()));
    }
  }
  work();
}

void Server::report_failure(int rank, std::string_view text) {
  if (failure_) {
    return;
  }
  failure_ = fmt::format("rank {} failed: {}", rank, text.substr(0, kMaxFailureText));
  waiters_.clear();
  for (const auto& [member, id] : members_) {
    Peer& peer = peers_.at(id);
    peer.pending.clear();
    peer.ready.clear();
    peer.num_waits = 0;
    send(peer, FrameType::Failure, *failure_);
  }
}

std::vector<int> Server::ranks() const {
  std::vector<int> ranks;
  for (const auto& [rank, id] : members_) {
    ranks.push_back(rank);
  }
  return ranks;
}

std::size_t Server::buffered_bytes() const {
  std::size_t nbytes = 0;
  for (const auto& [id, peer] : peers_) {
    nbytes += peer.buffered_bytes();
  }
  return nbytes;
}

std::vector<std::string> Server::take_refusals() {
  return std::exchange(refusals_, {});
}

void Server::work() {
  while (!busy_.empty()) {
    const PeerId id = *busy_.begin();
    busy_.erase(busy_.begin());
    const auto found = peers_.find(id);
    while (found != peers_.end() && step(id, found->second)) {
    }
  }
}

bool Server::step(PeerId id, Peer& peer) {
  if (peer.state >= Peer::State::Closing || peer.output.size() - peer.num_sent >= kMaxOutput) {
    return false;
  }
  try {
    if (answer_ready(id, peer)) {
      return true;
    }
    const std::optional<Frame> frame = next_frame(peer);
    if (frame) {
      read_frame(id, peer, *frame);
    }
    return frame.has_value();
  } catch (const RefusedError& error) {
    refuse(id, peer, error.reason(), error.what());
  } catch (const ProtocolError& error) {
    const bool is_member = peer.state == Peer::State::Member;
    refuse(id, peer, is_member ? std::nullopt : std::optional(Refusal::Protocol), error.what());
  }
  return false;
}

std::optional<Frame> Server::next_frame(Peer& peer) {
  std::string_view bytes = std::string_view(peer.inbox).substr(peer.num_read);
  const std::size_t num_left = bytes.size();
  std::optional<Frame> frame = peer.reader.read(bytes);
  const std::size_t num_read = num_left - bytes.size();
  peer.num_read += num_read;
  if (bytes.empty()) {
    release(peer.inbox);
    peer.num_read = 0;
  }
  if (peer.state != Peer::State::Member) {
    peer.bytes_before_auth += num_read;
    check<ProtocolError>(peer.bytes_before_auth <= kMaxBytesBeforeAuth,
                         "store: a handshake must have at most {} bytes, got {}",
                         kMaxBytesBeforeAuth, peer.bytes_before_auth);
  }
  return frame;
}

void Server::read_frame(PeerId id, Peer& peer, const Frame& frame) {
  if (peer.state == Peer::State::Greeting) {
    peer.output += peer.handshake.challenge(frame);
    peer.state = Peer::State::Proving;
  } else if (peer.state == Peer::State::Proving) {
    welcome(id, peer, frame);
  } else {
    handle(id, peer, decode_request(frame.type, peer.opener->open(frame)));
  }
}

void Server::welcome(PeerId id, Peer& peer, const Frame& proof) {
  peer.handshake.check_proof(proof, options_.job_id, options_.world_size);
  const int rank = peer.handshake.rank();
  if (members_.contains(rank)) {
    throw RefusedError(Refusal::DuplicateRank,
                       fmt::format("store: rank {} is connected already", rank));
  }
  const SessionKeys keys = peer.handshake.keys();
  peer.opener.emplace(keys.from_client);
  peer.sealer.emplace(keys.from_server);
  peer.reader.set_max_frame(kMaxFrame);
  peer.deadline.reset();
  peer.state = Peer::State::Member;
  members_.emplace(rank, id);
  attendance_[static_cast<std::size_t>(rank)] = Attendance::Here;
  send(peer, FrameType::Welcome, {});
  if (failure_) {
    send(peer, FrameType::Failure, *failure_);
  }
}

void Server::refuse(PeerId id, Peer& peer, std::optional<Refusal> refusal,
                    const std::string& reason) {
  if (refusal) {
    peer.output += encode_refused(*refusal);
    if (refusals_.size() < kMaxRefusals) {
      refusals_.push_back(reason);
    }
  }
  leave(id, peer, "it broke the protocol: " + reason);
  close(peer);
}

void Server::close(Peer& peer) {
  release(peer.inbox);
  peer.num_read = 0;
  peer.reader = FrameReader(0);
  peer.state = peer.output.empty() ? Peer::State::Closed : Peer::State::Closing;
  peer.deadline = clock_.now() + kAuthTimeout;
}

void Server::leave(PeerId id, Peer& peer, const std::string& reason, bool is_end) {
  const int rank = peer.handshake.rank();
  const auto member = members_.find(rank);
  if (member == members_.end() || member->second != id) {
    return;
  }
  attendance_[static_cast<std::size_t>(rank)] =
      peer.said_goodbye ? Attendance::Left : Attendance::Lost;
  if (!peer.said_goodbye && (!is_end || options_.reports_ends)) {
    report_failure(rank, reason);
  }
  members_.erase(member);
  while (!peer.pending.empty()) {
    forget(id, peer, peer.pending.begin()->first);
  }
  peer.ready.clear();
}

void Server::send(Peer& peer, FrameType type, std::string_view body) {
  peer.output += peer.sealer->seal(type, body);
}

void Server::reply(Peer& peer, const Reply& reply) {
  send(peer, FrameType::Reply, encode_reply(reply));
}

}  // namespace fsdptrain::comm::store
