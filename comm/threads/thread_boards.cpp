#include "comm/threads/thread_boards.h"

#include <memory>

#include "comm/board/board_link.h"
#include "comm/board/peer_memory.h"

namespace fsdptrain::comm {
namespace {

// Threads of one process see all of each other's memory.
class ProcessMemory final : public PeerMemory {
 public:
  std::optional<std::uint64_t> export_address(std::span<const std::byte> bytes) override {
    return reinterpret_cast<std::uintptr_t>(bytes.data());
  }
  std::span<const std::byte> import_bytes(int /*peer*/, std::uint64_t address,
                                          std::uint64_t nbytes) override {
    return {reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(address)), nbytes};
  }
  std::shared_ptr<Storage> allocate(std::size_t nbytes) override {
    return Storage::allocate(Device::cpu(), nbytes, MemoryCategory::Communication);
  }
  bool is_alive(int /*peer*/) override { return true; }
};

}  // namespace

ThreadBoards::ThreadBoards(int num_ranks)
    : memory_(2 * (Board::nbytes(num_ranks) / sizeof(Line) + 1)),
      training_(half(0), {}, num_ranks),
      control_(half(1), {}, num_ranks) {}

std::span<std::byte> ThreadBoards::half(std::size_t index) {
  const std::size_t lines = memory_.size() / 2;
  return std::as_writable_bytes(std::span(memory_).subspan(index * lines, lines));
}

Links ThreadBoards::connect(int rank, bool spins, HostSchedule* schedule) const {
  const BoardLink::Options options{.rank = rank, .spins = spins, .schedule = schedule};
  const auto memory = std::make_shared<ProcessMemory>();
  return {std::make_unique<BoardLink>(training_, memory, options),
          std::make_unique<BoardLink>(control_, memory, options)};
}

}  // namespace fsdptrain::comm
