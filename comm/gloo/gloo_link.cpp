#include "comm/gloo/gloo_link.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "comm/error.h"
#include "comm/link/headline.h"

namespace fsdptrain::comm {
namespace {

// Messages have slot 0.
constexpr std::uint64_t kFirstPayloadSlot = 1;
// A chunk is read while the next ones arrive.
constexpr std::size_t kChunksAhead = 3;
constexpr std::size_t kMaxChunkBytes = std::size_t{1} << 20;
// A multiple of every element.
constexpr std::size_t kChunkUnit = std::size_t{64} << 10;
// For chunks of all peers of an operation that arrive at the same time.
constexpr std::size_t kLandingBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxFailureBytes = 4096;
constexpr Nanoseconds kLongestLeave = std::chrono::seconds(1);
constexpr Nanoseconds kLongestAnswer = std::chrono::milliseconds(100);
constexpr Nanoseconds kBetweenQuestions = std::chrono::seconds(1);

// The same on all ranks.
std::size_t chunk_bytes_of(int size) {
  const std::size_t share = kLandingBytes / kChunksAhead / static_cast<std::size_t>(size);
  return std::clamp(share / kChunkUnit * kChunkUnit, kChunkUnit, kMaxChunkBytes);
}

Message message_of(Message::Kind kind, const Meeting& meeting = {}, int phase = 0) {
  Message message;
  message.kind = kind;
  message.sequence = meeting.sequence;
  message.phase = phase;
  return message;
}

// Of its own for every operation that two ranks have under way; its phases follow each other.
std::uint64_t payload_slot(const Meeting& meeting) {
  return kFirstPayloadSlot + meeting.sequence % (2 * Link::kMaxOpen);
}

std::size_t index_of(int phase) {
  return static_cast<std::size_t>(phase);
}

}  // namespace

GlooLink::GlooLink(std::unique_ptr<Mesh> mesh, std::function<void()> notify)
    : mesh_(std::move(mesh)), notify_(std::move(notify)), chunk_bytes_(chunk_bytes_of(size())) {
  for (int rank = 0; rank < size(); ++rank) {
    peers_.push_back(rank == this->rank() ? nullptr : std::make_unique<Peer>());
  }
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != this->rank()) {
      peer(rank).wire = std::make_unique<Wire>(
          *mesh_, rank,
          Wire::Handlers{[this, rank](const Message& message) { receive(rank, message); },
                         [this, rank] { close(rank); }});
    }
  }
  for (const auto& peer : peers_) {
    if (peer) {
      peer->wire->start();
    }
  }
}

GlooLink::~GlooLink() {
  leave();
  for (const auto& peer : peers_) {
    if (peer) {
      peer->wire->stop();
      peer->intake.stop();
    }
  }
  mesh_->close();
}

void GlooLink::leave() noexcept {
  try {
    std::optional<Failure> heard;
    {
      const std::lock_guard lock(mutex_);
      heard = failure_;
    }
    // Others may learn that this rank is gone before they hear of the one that was the cause.
    if (heard && heard->rank != rank()) {
      tell_failure(*heard);
    }
    tell_all(message_of(Message::Kind::Leave));
  } catch (const std::exception&) {
    // Nobody is told, and nobody would answer.
    return;
  }
  std::unique_lock lock(mutex_);
  bell_.wait_for(lock, kLongestLeave, [this] {
    return std::ranges::all_of(peers_, [](const auto& peer) {
      return !peer || peer->has_seen_leave || peer->presence != Presence::Here;
    });
  });
}

GlooLink::Theirs& GlooLink::theirs(const Meeting& meeting) {
  return peer(meeting.peer).theirs[meeting.sequence % kPlaces];
}

GlooLink::Mine& GlooLink::mine(const Meeting& meeting) {
  return peer(meeting.peer).mine[meeting.sequence % kPlaces];
}

GlooLink::Incoming& GlooLink::incoming(const Meeting& meeting, int phase) {
  return theirs(meeting).phases[index_of(phase)];
}

std::uint64_t GlooLink::num_chunks(std::uint64_t nbytes) const {
  return (nbytes + chunk_bytes_ - 1) / chunk_bytes_;
}

void GlooLink::post(const Meeting& meeting, const Frame& frame) {
  {
    const std::lock_guard lock(mutex_);
    mine(meeting) = {.posted = meeting.sequence + 1, .finished = 0, .phases = {}};
    peer(meeting.peer).num_posted_to = meeting.sequence + 1;
  }
  Message message = message_of(Message::Kind::Post, meeting);
  message.frame = frame;
  peer(meeting.peer).wire->send(message);
}

std::optional<Frame> GlooLink::frame(const Meeting& meeting) {
  const std::lock_guard lock(mutex_);
  const Theirs& theirs = this->theirs(meeting);
  return theirs.posted == meeting.sequence + 1 ? std::optional(theirs.frame) : std::nullopt;
}

void GlooLink::offer(std::span<const Meeting> readers, int phase,
                     std::span<const std::byte> bytes) {
  Message message = message_of(Message::Kind::Offer, {}, phase);
  message.nbytes = bytes.size();
  std::shared_ptr<Region> region;
  if (bytes.size() <= Message::kBytes) {
    std::ranges::copy(bytes, message.bytes.begin());
  } else {
    region = std::make_shared<Region>(*mesh_, bytes);
  }
  for (const Meeting& meeting : readers) {
    if (region) {
      // Before the message: the receives that it allows find the sends, and in their order.
      send_chunks(meeting, *region, bytes.size());
      const std::lock_guard lock(mutex_);
      mine(meeting).phases[index_of(phase)] = region;
    }
    message.sequence = meeting.sequence;
    peer(meeting.peer).wire->send(message);
  }
}

std::span<const std::byte> GlooLink::peek(const Meeting& meeting, int phase, std::size_t offset,
                                          std::size_t limit) {
  Incoming& incoming = this->incoming(meeting, phase);
  std::uint64_t num_arrived = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!incoming.is_offered) {
      return {};
    }
    num_arrived = incoming.num_arrived;
  }
  check<PeerError>(offset < incoming.nbytes,
                   "rank {} offers {} bytes where rank {} expects more than {}", meeting.peer,
                   incoming.nbytes, rank(), offset);
  limit = std::min<std::size_t>(limit, incoming.nbytes - offset);
  if (incoming.nbytes <= Message::kBytes) {
    return std::span<const std::byte>(incoming.bytes).subspan(offset, limit);
  }
  request_ahead(meeting, incoming);
  const std::uint64_t chunk = offset / chunk_bytes_;
  if (chunk >= num_arrived) {
    return {};
  }
  const std::size_t in_chunk = offset % chunk_bytes_;
  const Landing& landing = incoming.requested[chunk - incoming.num_read];
  return {landing.storage->data() + in_chunk, std::min(limit, chunk_bytes_ - in_chunk)};
}

void GlooLink::send_chunks(const Meeting& meeting, Region& region, std::size_t nbytes) const {
  for (std::size_t begin = 0; begin < nbytes; begin += chunk_bytes_) {
    region.send(meeting.peer, payload_slot(meeting), begin, std::min(chunk_bytes_, nbytes - begin));
  }
}

void GlooLink::request_ahead(const Meeting& meeting, Incoming& incoming) {
  while (incoming.requested.size() < kChunksAhead &&
         incoming.num_read + incoming.requested.size() < num_chunks(incoming.nbytes)) {
    incoming.requested.push_back(take_landing());
    Region& region = *incoming.requested.back().region;
    region.receive(meeting.peer, payload_slot(meeting), 0, chunk_bytes_);
    peer(meeting.peer).intake.expect(region, [this, &incoming] {
      {
        const std::lock_guard lock(mutex_);
        ++incoming.num_arrived;
      }
      ring();
    });
  }
}

GlooLink::Landing GlooLink::take_landing() {
  if (landings_.empty()) {
    auto storage = Storage::allocate(Device::cpu(), chunk_bytes_, MemoryCategory::Communication);
    auto region = std::make_unique<Region>(*mesh_, std::span(storage->data(), chunk_bytes_));
    return {std::move(storage), std::move(region)};
  }
  Landing landing = std::move(landings_.back());
  landings_.pop_back();
  return landing;
}

void GlooLink::consume(const Meeting& meeting, int phase, std::size_t offset) {
  Incoming& incoming = this->incoming(meeting, phase);
  if (incoming.nbytes <= Message::kBytes) {
    return;
  }
  const std::uint64_t num_read =
      offset == incoming.nbytes ? num_chunks(offset) : offset / chunk_bytes_;
  for (; incoming.num_read < num_read; ++incoming.num_read) {
    landings_.push_back(std::move(incoming.requested.front()));
    incoming.requested.pop_front();
  }
  request_ahead(meeting, incoming);
}

void GlooLink::finish(const Meeting& meeting) {
  peer(meeting.peer).wire->send(message_of(Message::Kind::Finish, meeting));
}

bool GlooLink::finished(const Meeting& meeting) {
  const std::lock_guard lock(mutex_);
  Mine& mine = this->mine(meeting);
  if (mine.finished != meeting.sequence + 1) {
    return false;
  }
  // The peer has all of it.
  mine.phases = {};
  return true;
}

std::uint32_t GlooLink::changes() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

void GlooLink::rest(std::uint32_t changes, Nanoseconds limit) {
  check_failure();
  {
    std::unique_lock lock(mutex_);
    bell_.wait_for(lock, limit, [&] { return changes_ != changes; });
  }
  check_failure();
}

Presence GlooLink::presence(int rank) {
  const std::lock_guard lock(mutex_);
  return rank == this->rank() ? Presence::Here : peer(rank).presence;
}

void GlooLink::report_failure(std::string_view text) noexcept {
  try {
    const Failure failure{rank(), std::string(headline(text).substr(0, kMaxFailureBytes))};
    {
      const std::lock_guard lock(mutex_);
      if (failure_) {
        return;
      }
      failure_ = failure;
    }
    ring();
    tell_failure(failure);
  } catch (const std::exception&) {
    // The peers see that this rank leaves.
    return;
  }
}

void GlooLink::check_failure() {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    fail<PeerError>("rank {} failed: {}", failure_->rank, failure_->text);
  }
}

std::shared_ptr<Storage> GlooLink::allocate(std::size_t nbytes) {
  return Storage::allocate(Device::cpu(), nbytes, MemoryCategory::Communication);
}

void GlooLink::set_position(const Position& position) {
  const std::lock_guard lock(mutex_);
  position_ = position;
}

Position GlooLink::position(int rank) {
  std::unique_lock lock(mutex_);
  if (rank == this->rank()) {
    return position_;
  }
  const Nanoseconds now = monotonic_clock().now();
  if (num_asked_ == 0 || now - last_asked_ > kBetweenQuestions) {
    last_asked_ = now;
    ++num_asked_;
    lock.unlock();
    tell_all(message_of(Message::Kind::Ask));
    lock.lock();
  }
  const Peer& peer = this->peer(rank);
  bell_.wait_for(lock, last_asked_ + kLongestAnswer - now,
                 [&] { return peer.num_answers == num_asked_ || peer.presence != Presence::Here; });
  return peer.position;
}

void GlooLink::tell_failure(const Failure& failure) {
  std::string_view text = failure.text;
  Message message = message_of(Message::Kind::Failure);
  message.waits_for = failure.rank;
  message.nbytes = text.size();
  do {
    message.num_bytes = std::min(text.size(), Message::kBytes);
    std::ranges::copy(std::as_bytes(std::span(text)).first(message.num_bytes),
                      message.bytes.begin());
    tell_all(message);
    text.remove_prefix(message.num_bytes);
  } while (!text.empty());
}

void GlooLink::tell_all(const Message& message) {
  for (const auto& peer : peers_) {
    if (peer) {
      peer->wire->send(message);
    }
  }
}

void GlooLink::ring() {
  {
    const std::lock_guard lock(mutex_);
    ++changes_;
  }
  bell_.notify_all();
  if (notify_) {
    notify_();
  }
}

void GlooLink::receive(int rank, const Message& message) {
  try {
    dispatch(rank, message);
  } catch (const std::exception& error) {
    report_failure(error.what());
  }
}

void GlooLink::close(int rank) {
  {
    const std::lock_guard lock(mutex_);
    Peer& peer = this->peer(rank);
    peer.presence = peer.presence == Presence::Here ? Presence::Dead : peer.presence;
  }
  ring();
}

void GlooLink::check_message(int rank, const Message& message) {
  const Peer& peer = this->peer(rank);
  const std::uint64_t posted = message.sequence + 1;
  const std::uint64_t place = message.sequence % kPlaces;
  bool fits = message.phase >= 0 && index_of(message.phase) < kPhases;
  check<ProtocolError>(message.kind <= Message::Kind::Seen,
                       "rank {} sent a message of unknown kind {}: all ranks must run the same "
                       "build",
                       rank, static_cast<int>(message.kind));
  switch (message.kind) {
    case Message::Kind::Post:
      // Where it would lie is still in use otherwise.
      fits =
          message.sequence == peer.num_posted && message.sequence < peer.num_posted_to + kMaxOpen;
      break;
    case Message::Kind::Offer:
      fits = fits && peer.theirs[place].posted == posted &&
             !peer.theirs[place].phases[index_of(message.phase)].is_offered;
      break;
    case Message::Kind::Finish:
      fits = peer.mine[place].posted == posted;
      break;
    case Message::Kind::Failure:
      fits = message.nbytes <= kMaxFailureBytes && message.num_bytes <= Message::kBytes &&
             message.waits_for >= 0 && message.waits_for < size() &&
             peer.failure.size() + message.num_bytes <= message.nbytes;
      break;
    case Message::Kind::Ask:
    case Message::Kind::Position:
    case Message::Kind::Leave:
    case Message::Kind::Seen:
      break;
  }
  check<ProtocolError>(fits,
                       "rank {} sent what fits nothing here (kind {}, operation {}, phase {}, "
                       "{} bytes): all ranks must run the same build",
                       rank, static_cast<int>(message.kind), message.sequence, message.phase,
                       message.num_bytes);
}

void GlooLink::dispatch(int rank, const Message& message) {
  Peer& peer = this->peer(rank);
  std::unique_lock lock(mutex_);
  check_message(rank, message);
  const std::uint64_t place = message.sequence % kPlaces;
  switch (message.kind) {
    case Message::Kind::Post:
      ++peer.num_posted;
      peer.theirs[place] = {message.sequence + 1, message.frame, {}};
      break;
    case Message::Kind::Offer: {
      Incoming& incoming = peer.theirs[place].phases[index_of(message.phase)];
      incoming.is_offered = true;
      incoming.nbytes = message.nbytes;
      incoming.bytes = message.bytes;
      break;
    }
    case Message::Kind::Finish:
      peer.mine[place].finished = message.sequence + 1;
      break;
    case Message::Kind::Ask:
      lock.unlock();
      answer(rank);
      return;
    case Message::Kind::Position:
      peer.position = {message.progress, message.frame, message.waits_for,
                       monotonic_clock().now().count() - message.age};
      ++peer.num_answers;
      break;
    case Message::Kind::Failure: {
      const auto* text = reinterpret_cast<const char*>(message.bytes.data());
      peer.failure.append(text, message.num_bytes);
      if (peer.failure.size() == message.nbytes && !failure_) {
        failure_ = {message.waits_for, peer.failure};
      }
      break;
    }
    case Message::Kind::Leave:
      peer.presence = Presence::Left;
      lock.unlock();
      peer.wire->send(message_of(Message::Kind::Seen));
      break;
    case Message::Kind::Seen:
      peer.has_seen_leave = true;
      break;
  }
  if (lock.owns_lock()) {
    lock.unlock();
  }
  ring();
}

void GlooLink::answer(int rank) {
  Message message = message_of(Message::Kind::Position);
  {
    const std::lock_guard lock(mutex_);
    message.progress = position_.progress;
    message.frame = position_.frame;
    message.waits_for = position_.waits_for;
    // Clocks of two hosts have nothing in common.
    message.age = monotonic_clock().now().count() - position_.since;
  }
  peer(rank).wire->send(message);
}

}  // namespace fsdptrain::comm
