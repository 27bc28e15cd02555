#include "comm/hosts/host_link.h"

#include "comm/error.h"

namespace fsdptrain::comm {

HostLink::HostLink(std::unique_ptr<Link> local, std::unique_ptr<Link> remote,
                   std::vector<int> hosts)
    : local_(std::move(local)), remote_(std::move(remote)) {
  check<ConfigError>(hosts.size() == static_cast<std::size_t>(size()),
                     "there must be one host per rank, got {} for {} ranks", hosts.size(), size());
  const int host = hosts[static_cast<std::size_t>(rank())];
  int num_local = 0;
  for (int rank = 0; rank < size(); ++rank) {
    const bool is_local = hosts[static_cast<std::size_t>(rank)] == host;
    check<ConfigError>(rank != this->rank() || num_local == local_->rank(),
                       "rank {} is number {} on its host, but joins it as number {}", rank,
                       num_local, local_->rank());
    ways_.push_back(is_local ? Way{local_.get(), num_local++} : Way{remote_.get(), rank});
  }
  check<ConfigError>(num_local == local_->size(), "host {} has {} ranks, but memory for {} of them",
                     host, num_local, local_->size());
}

void HostLink::post(const Meeting& meeting, const Frame& frame) {
  way(meeting.peer).link->post(there(meeting), frame);
}

std::optional<Frame> HostLink::frame(const Meeting& meeting) {
  return way(meeting.peer).link->frame(there(meeting));
}

void HostLink::offer(std::span<const Meeting> readers, int phase,
                     std::span<const std::byte> bytes) {
  for (Link* link : {remote_.get(), local_.get()}) {
    std::vector<Meeting> reached;
    for (const Meeting& meeting : readers) {
      if (way(meeting.peer).link == link) {
        reached.push_back(there(meeting));
      }
    }
    if (!reached.empty()) {
      link->offer(reached, phase, bytes);
    }
  }
}

bool HostLink::advance(std::span<const Meeting> meetings) {
  std::vector<Meeting> reached;
  for (const Meeting& meeting : meetings) {
    if (way(meeting.peer).link == local_.get()) {
      reached.push_back(there(meeting));
    }
  }
  // What goes over the network is on its way.
  return local_->advance(reached);
}

std::span<const std::byte> HostLink::peek(const Meeting& meeting, int phase, std::size_t offset,
                                          std::size_t limit) {
  return way(meeting.peer).link->peek(there(meeting), phase, offset, limit);
}

void HostLink::consume(const Meeting& meeting, int phase, std::size_t offset) {
  way(meeting.peer).link->consume(there(meeting), phase, offset);
}

void HostLink::finish(const Meeting& meeting) {
  way(meeting.peer).link->finish(there(meeting));
}

bool HostLink::finished(const Meeting& meeting) {
  return way(meeting.peer).link->finished(there(meeting));
}

std::uint32_t HostLink::changes() const {
  return local_->changes();
}

void HostLink::rest(std::uint32_t changes, Nanoseconds limit) {
  check_failure();
  local_->rest(changes, limit);
  check_failure();
}

Presence HostLink::presence(int peer) {
  return way(peer).link->presence(way(peer).rank);
}

// The network reaches the ranks of this host too, and knows all by their numbers in the world.
void HostLink::report_failure(std::string_view text) noexcept {
  remote_->report_failure(text);
}

void HostLink::check_failure() {
  remote_->check_failure();
}

std::shared_ptr<Storage> HostLink::allocate(std::size_t nbytes) {
  return local_->allocate(nbytes);
}

void HostLink::set_position(const Position& position) {
  local_->set_position(position);
  remote_->set_position(position);
}

Position HostLink::position(int rank) {
  return way(rank).link->position(way(rank).rank);
}

}  // namespace fsdptrain::comm
