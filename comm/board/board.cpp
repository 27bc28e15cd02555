#include "comm/board/board.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "comm/board/futex.h"
#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

// Where each part of a board begins.
struct Offsets {
  explicit Offsets(int num_ranks)
      : ranks(failures + static_cast<std::size_t>(num_ranks) * sizeof(Failure)),
        mailboxes(ranks + static_cast<std::size_t>(num_ranks) * sizeof(RankState)),
        end(mailboxes + static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_ranks) *
                            Link::kMaxOpen * sizeof(Mailbox)) {}

  // The number of the first rank that failed is before them.
  std::size_t failures = 64;
  std::size_t ranks;
  std::size_t mailboxes;
  std::size_t end;
};

constexpr std::size_t kLaneBytes = kSlotsPerLane * kChunkBytes;

}  // namespace

std::size_t Board::nbytes(int num_ranks) {
  return Offsets(num_ranks).end;
}

std::size_t Board::staging_nbytes(int num_ranks) {
  // A lane for all readers and one for each of them.
  const auto ranks = static_cast<std::size_t>(num_ranks);
  return ranks * (1 + ranks) * kLaneBytes;
}

Board::Board(std::span<std::byte> memory, std::span<std::byte> staging, int num_ranks)
    : num_ranks_(num_ranks), staging_(staging.data()) {
  check(memory.size() >= nbytes(num_ranks) &&
            (staging.empty() || staging.size() >= staging_nbytes(num_ranks)),
        "board: {} + {} bytes are too few for {} ranks", memory.size(), staging.size(), num_ranks);
  const Offsets offsets(num_ranks);
  // All members are zero to begin with, and objects of implicit lifetime: nothing is constructed,
  // because another rank may have begun to use them.
  first_failed_ = reinterpret_cast<std::atomic<std::int32_t>*>(memory.data());
  failures_ = reinterpret_cast<Failure*>(memory.data() + offsets.failures);
  ranks_ = reinterpret_cast<RankState*>(memory.data() + offsets.ranks);
  mailboxes_ = reinterpret_cast<Mailbox*>(memory.data() + offsets.mailboxes);
}

Mailbox& Board::mailbox(int from, int to, std::uint64_t sequence) const {
  const auto pair = static_cast<std::uint64_t>(from) * static_cast<std::uint64_t>(num_ranks_) +
                    static_cast<std::uint64_t>(to);
  return mailboxes_[pair * Link::kMaxOpen + sequence % Link::kMaxOpen];
}

std::byte* Board::pair_slot(int from, int to, std::uint32_t chunk) const {
  const auto lane = static_cast<std::size_t>(from) * static_cast<std::size_t>(num_ranks_ + 1) + 1 +
                    static_cast<std::size_t>(to);
  return staging_ + lane * kLaneBytes + chunk % kSlotsPerLane * kChunkBytes;
}

std::byte* Board::shared_slot(int from, std::uint32_t chunk) const {
  const auto lane = static_cast<std::size_t>(from) * static_cast<std::size_t>(num_ranks_ + 1);
  return staging_ + lane * kLaneBytes + chunk % kSlotsPerLane * kChunkBytes;
}

void Board::report_failure(int rank, std::string_view text) const noexcept {
  Failure& mine = failure(rank);
  if (!mine.is_taken.exchange(true)) {
    // The last character stays zero.
    std::memcpy(mine.text.data(), text.data(), std::min(text.size(), mine.text.size() - 1));
    std::int32_t none = 0;
    first_failed_->compare_exchange_strong(none, rank + 1);
  }
  ring_all();
}

void Board::report_end(int rank, std::string_view text) const noexcept {
  report_failure(rank, text);
  // A text that the rank began and never finished: it has no other writer any more.
  std::int32_t none = 0;
  first_failed_->compare_exchange_strong(none, rank + 1);
  ring_all();
}

void Board::ring(int rank) const {
  RankState& state = ranks_[rank];
  state.bell.fetch_add(1, std::memory_order_seq_cst);
  if (state.num_sleeping.load(std::memory_order_seq_cst) > 0) {
    futex_wake(state.bell);
  }
}

void Board::ring_all() const {
  for (int rank = 0; rank < num_ranks_; ++rank) {
    ring(rank);
  }
}

}  // namespace fsdptrain::comm
