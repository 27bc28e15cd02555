#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "comm/board/board.h"
#include "comm/board/peer_memory.h"
#include "comm/link/link.h"

namespace fsdptrain {
class HostSchedule;
}

namespace fsdptrain::comm {

// The link of ranks that share a board: threads of one process, or processes of one host. Bytes
// that the reader can see are read where they lie; others go through slots, in chunks, while the
// rank that offers them waits.
class BoardLink final : public Link {
 public:
  struct Options {
    int rank = 0;
    // 50 us of spinning before sleep; none where there are more compute threads than cores.
    bool spins = true;
    // Waits for other ranks by it, if it is not null; of ranks that are threads.
    HostSchedule* schedule = nullptr;
  };

  // `memory` says what peers can read directly, and has what the board lies in. MisuseError if the
  // rank has joined before.
  BoardLink(const Board& board, std::shared_ptr<PeerMemory> memory, const Options& options);
  ~BoardLink() override;

  int rank() const override { return options_.rank; }
  int size() const override { return board_.size(); }

  void post(const Meeting& meeting, const Frame& frame) override;
  std::optional<Frame> frame(const Meeting& meeting) override;
  void offer(std::span<const Meeting> readers, int phase,
             std::span<const std::byte> bytes) override;
  bool advance(std::span<const Meeting> meetings) override;
  std::span<const std::byte> peek(const Meeting& meeting, int phase, std::size_t offset,
                                  std::size_t limit) override;
  void consume(const Meeting& meeting, int phase, std::size_t offset) override;
  void finish(const Meeting& meeting) override;
  bool finished(const Meeting& meeting) override;
  std::uint32_t changes() const override;
  void rest(std::uint32_t changes, Nanoseconds limit) override;
  Presence presence(int peer) override;
  void report_failure(std::string_view text) noexcept override;
  void check_failure() override;
  std::shared_ptr<Storage> allocate(std::size_t nbytes) override;
  void set_position(const Position& position) override;
  Position position(int rank) override;

 private:
  // Bytes on their way through slots.
  struct Staged {
    std::vector<Meeting> readers;
    int phase = 0;
    Place place = Place::PairSlots;
    std::span<const std::byte> bytes;
    std::uint32_t num_staged = 0;

    std::uint32_t num_chunks() const {
      return static_cast<std::uint32_t>((bytes.size() + kChunkBytes - 1) / kChunkBytes);
    }
  };

  // Mine to a peer, and a peer's to me.
  Mailbox& outgoing(const Meeting& meeting) const;
  Mailbox& incoming(const Meeting& meeting) const;
  bool stage(Staged& staged) const;
  std::uint32_t num_read_by_all(const Staged& staged) const;
  bool uses_same_slots(const Staged& one, const Staged& other) const;
  // Those that all have read are over: their mailboxes may be used again.
  void drop_read();

  Board board_;
  std::shared_ptr<PeerMemory> memory_;
  Options options_;
  std::deque<Staged> staged_;
};

}  // namespace fsdptrain::comm
