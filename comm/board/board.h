#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/board/seqlock.h"
#include "comm/link/frame.h"
#include "comm/link/link.h"

// What the ranks of one host have in common: plain structures in memory that all of them map, and
// that starts as zeros.
namespace fsdptrain::comm {

// Where the bytes of a phase can be read.
enum class Place : std::uint32_t {
  // At `address` in the memory of the rank that offers.
  Direct,
  // In the slots that it has for this reader, or for all readers, chunk by chunk.
  PairSlots,
  SharedSlots,
};

struct PhaseOffer {
  Place place = Place::Direct;
  // An address, where ranks are threads, or an offset in the arena.
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  // Chunks that can be read; a direct offer is one. Written last by the rank that offers.
  std::atomic<std::uint32_t> num_ready{0};
  // Chunks that were read, by the reader.
  std::atomic<std::uint32_t> num_read{0};
};

// One operation between the rank that posts it and one that reads it.
struct Mailbox {
  // Sequence + 1 of the operation that the rest belongs to.
  std::atomic<std::uint64_t> posted{0};
  Frame frame;
  std::array<PhaseOffer, 2> phases;
  // Sequence + 1, from the reader: it needs nothing more of it.
  std::atomic<std::uint64_t> finished{0};
};

enum class RankPresence : std::uint32_t { Absent, Here, Left };

struct alignas(64) RankState {
  // Changes with everything that this rank may wait for.
  std::atomic<std::uint32_t> bell{0};
  std::atomic<std::uint32_t> num_sleeping{0};
  std::atomic<RankPresence> presence{RankPresence::Absent};
  std::atomic<std::int32_t> process{0};
  Seqlock<Position> position;
};

// Why a rank fails. It counts once the text is whole, see Board::first_failed(): a rank may be
// killed while it writes.
struct alignas(64) Failure {
  // A thread of the rank writes the text, or has.
  std::atomic<bool> is_taken{false};
  std::array<char, 4096> text{};
};

// Staged bytes travel in chunks of this size, a multiple of every element.
inline constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
// Both sides copy at once, and a reader that is late by less than this holds nobody up.
inline constexpr std::size_t kSlotsPerLane = 4;

// The common memory of the links of a world on one host: its parts by address. Copies are cheap and
// refer to the same memory.
class Board {
 public:
  // How much memory `num_ranks` ranks need, and for staging slots on top.
  static std::size_t nbytes(int num_ranks);
  static std::size_t staging_nbytes(int num_ranks);

  // `memory` starts as zeros and outlives the board; `staging` may be empty.
  Board(std::span<std::byte> memory, std::span<std::byte> staging, int num_ranks);

  int size() const { return num_ranks_; }
  // The rank that failed first, plus 1; 0 while none has.
  std::atomic<std::int32_t>& first_failed() const { return *first_failed_; }
  Failure& failure(int rank) const { return failures_[rank]; }
  RankState& rank(int rank) const { return ranks_[rank]; }
  // Where `from` posts and `to` reads.
  Mailbox& mailbox(int from, int to, std::uint64_t sequence) const;
  // The slot for a chunk that `from` stages for `to`, or for all.
  std::byte* pair_slot(int from, int to, std::uint32_t chunk) const;
  std::byte* shared_slot(int from, std::uint32_t chunk) const;

  // Makes all ranks end with "rank R failed: text". The first of all failures counts, and of a rank
  // the first text.
  void report_failure(int rank, std::string_view text) const noexcept;
  // The same by whoever saw the end of a rank's process: of no effect on a failure that the rank
  // has reported, but one whose report it did not live to finish counts.
  void report_end(int rank, std::string_view text) const noexcept;

  // Tells a rank that something changed, or all of them.
  void ring(int rank) const;
  void ring_all() const;

 private:
  int num_ranks_;
  std::atomic<std::int32_t>* first_failed_;
  Failure* failures_;
  RankState* ranks_;
  Mailbox* mailboxes_;
  std::byte* staging_;
};

}  // namespace fsdptrain::comm
