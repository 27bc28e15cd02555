#pragma once

#include <memory>
#include <vector>

#include "comm/board/peer_memory.h"
#include "comm/clock.h"
#include "comm/shm/arena.h"
#include "comm/shm/segment.h"

namespace fsdptrain::comm {

// What processes of one host read of each other: what they allocated in their arenas.
class HostMemory final : public PeerMemory {
 public:
  HostMemory(std::shared_ptr<const Segment> segment, const Board& board, int rank);
  ~HostMemory() override;

  // Writes this process into the board, where the others find it; once the rank has joined.
  void announce() const;

  std::optional<std::uint64_t> export_address(std::span<const std::byte> bytes) override;
  std::span<const std::byte> import_bytes(int peer, std::uint64_t address,
                                          std::uint64_t nbytes) override;
  std::shared_ptr<Storage> allocate(std::size_t nbytes) override;
  // Asks the system at most every few milliseconds.
  bool is_alive(int peer) override;

 private:
  struct Process {
    int descriptor = -1;
    bool is_dead = false;
    Nanoseconds last_look{};
  };

  std::shared_ptr<const Segment> segment_;
  Board board_;
  int rank_;
  std::shared_ptr<Arena> arena_;
  std::vector<Process> processes_;
};

}  // namespace fsdptrain::comm
