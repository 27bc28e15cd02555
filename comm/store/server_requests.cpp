// What members of the store ask for.
#include <utility>

#include "comm/store/server.h"

namespace fsdptrain::comm::store {

void Server::handle(PeerId id, Peer& peer, Request request) {
  if (request.type == FrameType::Cancel) {
    cancel(id, peer, request.id);
    return;
  }
  check<ProtocolError>(request.id > peer.last_id,
                       "store: the id of a request must be above {}, got {}", peer.last_id,
                       request.id);
  peer.last_id = request.id;
  if (request.type == FrameType::Goodbye) {
    peer.said_goodbye = true;
    leave(id, peer, {});
    send(peer, FrameType::Farewell, {});
    close(peer);
  } else if (request.type == FrameType::ReportFailure) {
    // Every member is told, this one too: that is the reply.
    report_failure(peer.handshake.rank(), request.value);
  } else if (failure_) {
    // The peer has been told, or is about to read it: that ends this request too.
  } else if (request.type == FrameType::Get || request.type == FrameType::Wait) {
    wait_for(id, peer, std::move(request));
  } else {
    change(peer, std::move(request));
  }
}

void Server::change(Peer& peer, Request request) {
  const std::string& key = request.keys.at(0);
  check<ProtocolError>(may_write(peer.handshake.rank(), key),
                       "store: rank {} may not write '{}', the key of another rank",
                       peer.handshake.rank(), key);
  Reply answer{.id = request.id};
  try {
    if (request.type == FrameType::Set) {
      table_.set(key, std::move(request.value));
    } else if (request.type == FrameType::Add) {
      answer.value = encode_number(table_.add(key, request.delta));
    } else {
      table_.compare_set(key, request.expected, std::move(request.value));
      if (const std::string* value = table_.find(key)) {
        answer.value = *value;
      }
    }
  } catch (const RejectedError& error) {
    answer = {.id = request.id, .status = ReplyStatus::Rejected, .value = error.what()};
  }
  reply(peer, answer);
  if (table_.find(key) != nullptr) {
    wake(key);
  }
}

void Server::wait_for(PeerId id, Peer& peer, Request request) {
  check<ProtocolError>(peer.num_waits + request.keys.size() <= kMaxWaits,
                       "store: a rank may wait for {} keys, got {} and {} more", kMaxWaits,
                       peer.num_waits, request.keys.size());
  std::size_t num_missing = 0;
  for (const std::string& key : request.keys) {
    if (table_.find(key) == nullptr) {
      waiters_[key].push_back({id, request.id});
      ++num_missing;
    }
  }
  peer.num_waits += request.keys.size();
  peer.pending.emplace(request.id,
                       Peer::Pending{request.type, std::move(request.keys), num_missing});
  if (num_missing == 0) {
    peer.ready.push_back(request.id);
  }
}

void Server::wake(const std::string& key) {
  const auto waiters = waiters_.extract(key);
  if (waiters.empty()) {
    return;
  }
  for (const Waiter& waiter : waiters.mapped()) {
    Peer& peer = peers_.at(waiter.peer);
    if (--peer.pending.at(waiter.request).num_missing == 0) {
      peer.ready.push_back(waiter.request);
      busy_.insert(waiter.peer);
    }
  }
}

bool Server::answer_ready(PeerId id, Peer& peer) {
  if (peer.ready.empty()) {
    return false;
  }
  const std::uint64_t request = peer.ready.front();
  peer.ready.pop_front();
  const Peer::Pending& pending = peer.pending.at(request);
  Reply answer{.id = request};
  if (pending.type == FrameType::Get) {
    answer.value = *table_.find(pending.keys.at(0));
  }
  reply(peer, answer);
  forget(id, peer, request);
  return true;
}

void Server::cancel(PeerId id, Peer& peer, std::uint64_t request) {
  check<ProtocolError>(request <= peer.last_id,
                       "store: a request must come before its cancellation, got {} after {}",
                       request, peer.last_id);
  const auto found = peer.pending.find(request);
  // Otherwise it has been answered, or is about to be.
  if (found == peer.pending.end() || found->second.num_missing == 0) {
    return;
  }
  Reply answer{.id = request, .status = ReplyStatus::Cancelled};
  for (const std::string& key : found->second.keys) {
    if (table_.find(key) == nullptr) {
      answer.keys.push_back(key);
    }
  }
  reply(peer, answer);
  forget(id, peer, request);
}

void Server::forget(PeerId id, Peer& peer, std::uint64_t request) {
  const auto found = peer.pending.find(request);
  for (const std::string& key : found->second.keys) {
    const auto waiters = waiters_.find(key);
    if (waiters != waiters_.end()) {
      std::erase(waiters->second, Waiter{id, request});
      if (waiters->second.empty()) {
        waiters_.erase(waiters);
      }
    }
  }
  peer.num_waits -= found->second.keys.size();
  peer.pending.erase(found);
}

}  // namespace fsdptrain::comm::store
