#include "comm/board/board_link.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/board/futex.h"
#include "comm/error.h"
#include "comm/link/headline.h"
#include "runtime/base/host_schedule.h"
#include "runtime/base/quoted.h"
#include "runtime/base/spin.h"

namespace fsdptrain::comm {
namespace {

constexpr Nanoseconds kSpinTime = std::chrono::microseconds(50);
// Looks at the bell between two looks at the clock.
constexpr int kLooksPerTime = 64;

std::uint32_t chunk_of(std::size_t offset) {
  return static_cast<std::uint32_t>(offset / kChunkBytes);
}

}  // namespace

BoardLink::BoardLink(const Board& board, std::shared_ptr<PeerMemory> memory, const Options& options)
    : board_(board), memory_(std::move(memory)), options_(options) {
  RankPresence absent = RankPresence::Absent;
  check<MisuseError>(
      board_.rank(options_.rank).presence.compare_exchange_strong(absent, RankPresence::Here),
      "rank {} has joined before; the ranks of every run share memory of their own", options_.rank);
}

BoardLink::~BoardLink() {
  board_.rank(options_.rank).presence.store(RankPresence::Left, std::memory_order_release);
  board_.ring_all();
}

Mailbox& BoardLink::outgoing(const Meeting& meeting) const {
  return board_.mailbox(options_.rank, meeting.peer, meeting.sequence);
}

Mailbox& BoardLink::incoming(const Meeting& meeting) const {
  return board_.mailbox(meeting.peer, options_.rank, meeting.sequence);
}

void BoardLink::post(const Meeting& meeting, const Frame& frame) {
  drop_read();
  Mailbox& mailbox = outgoing(meeting);
  mailbox.frame = frame;
  for (PhaseOffer& phase : mailbox.phases) {
    phase.num_ready.store(0, std::memory_order_relaxed);
    phase.num_read.store(0, std::memory_order_relaxed);
  }
  mailbox.posted.store(meeting.sequence + 1, std::memory_order_release);
  board_.ring(meeting.peer);
}

std::optional<Frame> BoardLink::frame(const Meeting& meeting) {
  const Mailbox& mailbox = incoming(meeting);
  if (mailbox.posted.load(std::memory_order_acquire) != meeting.sequence + 1) {
    return std::nullopt;
  }
  return mailbox.frame;
}

void BoardLink::offer(std::span<const Meeting> readers, int phase,
                      std::span<const std::byte> bytes) {
  const auto address = memory_->export_address(bytes);
  const Place place = address              ? Place::Direct
                      : readers.size() > 1 ? Place::SharedSlots
                                           : Place::PairSlots;
  for (const Meeting& meeting : readers) {
    PhaseOffer& offer = outgoing(meeting).phases[static_cast<std::size_t>(phase)];
    offer.place = place;
    offer.address = address.value_or(0);
    offer.nbytes = bytes.size();
    if (address) {
      offer.num_ready.store(1, std::memory_order_release);
      board_.ring(meeting.peer);
    }
  }
  if (!address) {
    staged_.push_back({{readers.begin(), readers.end()}, phase, place, bytes});
  }
}

bool BoardLink::advance(std::span<const Meeting> meetings) {
  drop_read();
  bool moved = false;
  std::vector<const Staged*> before;
  for (Staged& staged : staged_) {
    if (std::ranges::find(meetings, staged.readers.front()) == meetings.end()) {
      continue;
    }
    const bool is_blocked = std::ranges::any_of(
        before, [&](const Staged* other) { return uses_same_slots(staged, *other); });
    moved = (!is_blocked && stage(staged)) || moved;
    before.push_back(&staged);
  }
  return moved;
}

bool BoardLink::uses_same_slots(const Staged& one, const Staged& other) const {
  return one.place == other.place && (one.place == Place::SharedSlots ||
                                      one.readers.front().peer == other.readers.front().peer);
}

void BoardLink::drop_read() {
  std::erase_if(staged_, [this](const Staged& staged) {
    return num_read_by_all(staged) == staged.num_chunks();
  });
}

std::uint32_t BoardLink::num_read_by_all(const Staged& staged) const {
  std::uint32_t num_read = staged.num_chunks();
  for (const Meeting& meeting : staged.readers) {
    const PhaseOffer& offer = outgoing(meeting).phases[static_cast<std::size_t>(staged.phase)];
    num_read = std::min(num_read, offer.num_read.load(std::memory_order_acquire));
  }
  return num_read;
}

bool BoardLink::stage(Staged& staged) const {
  bool moved = false;
  while (staged.num_staged < staged.num_chunks() &&
         staged.num_staged < num_read_by_all(staged) + kSlotsPerLane) {
    const std::uint32_t chunk = staged.num_staged;
    const std::size_t begin = chunk * kChunkBytes;
    const std::size_t nbytes = std::min(kChunkBytes, staged.bytes.size() - begin);
    std::byte* slot = staged.place == Place::SharedSlots
                          ? board_.shared_slot(options_.rank, chunk)
                          : board_.pair_slot(options_.rank, staged.readers.front().peer, chunk);
    std::memcpy(slot, staged.bytes.data() + begin, nbytes);
    ++staged.num_staged;
    for (const Meeting& meeting : staged.readers) {
      outgoing(meeting).phases[static_cast<std::size_t>(staged.phase)].num_ready.store(
          staged.num_staged, std::memory_order_release);
      board_.ring(meeting.peer);
    }
    moved = true;
  }
  return moved;
}

std::span<const std::byte> BoardLink::peek(const Meeting& meeting, int phase, std::size_t offset,
                                           std::size_t limit) {
  const PhaseOffer& offer = incoming(meeting).phases[static_cast<std::size_t>(phase)];
  const std::uint32_t num_ready = offer.num_ready.load(std::memory_order_acquire);
  const std::uint32_t chunk = chunk_of(offset);
  if (num_ready == 0 || (offer.place != Place::Direct && num_ready <= chunk)) {
    return {};
  }
  const std::uint64_t nbytes = offer.nbytes;
  check<PeerError>(offset < nbytes, "rank {} offers {} bytes where rank {} expects more than {}",
                   meeting.peer, nbytes, options_.rank, offset);
  limit = std::min<std::size_t>(limit, nbytes - offset);
  if (offer.place == Place::Direct) {
    return memory_->import_bytes(meeting.peer, offer.address, nbytes).subspan(offset, limit);
  }
  const std::byte* slot = offer.place == Place::SharedSlots
                              ? board_.shared_slot(meeting.peer, chunk)
                              : board_.pair_slot(meeting.peer, options_.rank, chunk);
  const std::size_t in_chunk = offset % kChunkBytes;
  return {slot + in_chunk, std::min(limit, kChunkBytes - in_chunk)};
}

void BoardLink::consume(const Meeting& meeting, int phase, std::size_t offset) {
  PhaseOffer& offer = incoming(meeting).phases[static_cast<std::size_t>(phase)];
  if (offer.place == Place::Direct) {
    return;
  }
  const std::uint32_t num_read =
      offset == offer.nbytes ? chunk_of(offset - 1) + 1 : chunk_of(offset);
  if (num_read != offer.num_read.load(std::memory_order_relaxed)) {
    offer.num_read.store(num_read, std::memory_order_release);
    board_.ring(meeting.peer);
  }
}

void BoardLink::finish(const Meeting& meeting) {
  incoming(meeting).finished.store(meeting.sequence + 1, std::memory_order_release);
  board_.ring(meeting.peer);
}

bool BoardLink::finished(const Meeting& meeting) {
  return outgoing(meeting).finished.load(std::memory_order_acquire) == meeting.sequence + 1;
}

std::uint32_t BoardLink::changes() const {
  return board_.rank(options_.rank).bell.load(std::memory_order_acquire);
}

void BoardLink::rest(std::uint32_t changes, Nanoseconds limit) {
  RankState& mine = board_.rank(options_.rank);
  check_failure();
  if (options_.schedule != nullptr) {
    options_.schedule->wait([&] { return mine.bell.load(std::memory_order_acquire) != changes; });
    check_failure();
    return;
  }
  if (options_.spins) {
    const Nanoseconds end = monotonic_clock().now() + std::min(limit, kSpinTime);
    do {
      for (int i = 0; i < kLooksPerTime; ++i) {
        if (mine.bell.load(std::memory_order_acquire) != changes) {
          return;
        }
        spin_pause();
      }
    } while (monotonic_clock().now() < end);
  }
  mine.num_sleeping.fetch_add(1, std::memory_order_seq_cst);
  if (mine.bell.load(std::memory_order_seq_cst) == changes) {
    futex_wait(mine.bell, changes, limit);
  }
  mine.num_sleeping.fetch_sub(1, std::memory_order_seq_cst);
  check_failure();
}

Presence BoardLink::presence(int peer) {
  const RankPresence presence = board_.rank(peer).presence.load(std::memory_order_acquire);
  if (presence == RankPresence::Left) {
    return Presence::Left;
  }
  return presence == RankPresence::Here && !memory_->is_alive(peer) ? Presence::Dead
                                                                    : Presence::Here;
}

void BoardLink::report_failure(std::string_view text) noexcept {
  board_.report_failure(options_.rank, headline(text));
}

void BoardLink::check_failure() {
  const int rank = board_.first_failed().load(std::memory_order_acquire) - 1;
  if (rank >= 0 && rank < size()) {
    fail<PeerError>("rank {} failed: {}", rank, printable(text_in(board_.failure(rank).text)));
  }
}

std::shared_ptr<Storage> BoardLink::allocate(std::size_t nbytes) {
  return memory_->allocate(nbytes);
}

void BoardLink::set_position(const Position& position) {
  board_.rank(options_.rank).position.store(position);
}

Position BoardLink::position(int rank) {
  return board_.rank(rank).position.load().value_or(Position{});
}

}  // namespace fsdptrain::comm
