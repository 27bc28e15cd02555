#include "comm/shm/host_memory.h"

#include <cerrno>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/error.h"

namespace fsdptrain::comm {
namespace {

constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds(5);

}  // namespace

HostMemory::HostMemory(std::shared_ptr<const Segment> segment, const Board& board, int rank)
    : segment_(std::move(segment)),
      board_(board),
      rank_(rank),
      arena_(std::make_shared<Arena>(segment_->arena(rank), segment_,
                                     fmt::format("the shared memory of rank {}", rank))),
      processes_(static_cast<std::size_t>(board.size())) {}

void HostMemory::announce() const {
  board_.rank(rank_).process.store(::getpid(), std::memory_order_release);
}

HostMemory::~HostMemory() {
  for (const Process& process : processes_) {
    if (process.descriptor >= 0) {
      ::close(process.descriptor);
    }
  }
}

std::optional<std::uint64_t> HostMemory::export_address(std::span<const std::byte> bytes) {
  const std::span<std::byte> arena = segment_->arena(rank_);
  if (bytes.data() < arena.data() || bytes.data() + bytes.size() > arena.data() + arena.size()) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(bytes.data() - arena.data());
}

std::span<const std::byte> HostMemory::import_bytes(int peer, std::uint64_t address,
                                                    std::uint64_t nbytes) {
  const std::span<std::byte> arena = segment_->arena(peer);
  check<PeerError>(address <= arena.size() && nbytes <= arena.size() - address,
                   "rank {} offers {} bytes at {}, which is not in its shared memory of {}", peer,
                   nbytes, address, arena.size());
  return arena.subspan(address, nbytes);
}

std::shared_ptr<Storage> HostMemory::allocate(std::size_t nbytes) {
  return arena_->allocate_storage(nbytes);
}

bool HostMemory::is_alive(int peer) {
  Process& process = processes_[static_cast<std::size_t>(peer)];
  const Nanoseconds now = monotonic_clock().now();
  if (process.is_dead || now - process.last_look < kBetweenLooks) {
    return !process.is_dead;
  }
  process.last_look = now;
  const pid_t id = board_.rank(peer).process.load(std::memory_order_acquire);
  if (process.descriptor < 0 && id != 0) {
    process.descriptor = static_cast<int>(::syscall(SYS_pidfd_open, id, 0));
    process.is_dead = process.descriptor < 0 && errno == ESRCH;
  }
  if (process.descriptor >= 0) {
    pollfd ended{.fd = process.descriptor, .events = POLLIN, .revents = 0};
    process.is_dead = ::poll(&ended, 1, 0) > 0;
  }
  return !process.is_dead;
}

}  // namespace fsdptrain::comm
