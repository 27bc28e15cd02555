#include "comm/shm/arena.h"

#include <algorithm>
#include <utility>

#include "runtime/base/allocator.h"
#include "runtime/base/error.h"

namespace fsdptrain::comm {

Arena::Arena(std::span<std::byte> memory, std::shared_ptr<const void> owner, std::string name)
    : memory_(memory), owner_(std::move(owner)), name_(std::move(name)) {
  if (!memory_.empty()) {
    free_.emplace(0, memory_.size());
  }
}

std::shared_ptr<Storage> Arena::allocate(std::size_t nbytes) {
  const std::size_t wanted = size_class(nbytes);
  // The tightest piece: large ones stay whole.
  auto best = free_.end();
  std::size_t total = 0;
  std::size_t largest = 0;
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    total += piece->second;
    largest = std::max(largest, piece->second);
    if (piece->second >= wanted && (best == free_.end() || piece->second < best->second)) {
      best = piece;
    }
  }
  check<OutOfMemoryError>(
      best != free_.end(),
      "{}: {} bytes do not fit: {} of {} are free, {} of them in one piece; give the ranks more "
      "shared memory",
      name_, wanted, total, memory_.size(), largest);
  const auto [offset, size] = *best;
  free_.erase(best);
  if (size > wanted) {
    free_.emplace(offset + wanted, size - wanted);
  }
  std::shared_ptr<Storage> storage = Storage::placed(Device::cpu(), nbytes);
  storage->restore(memory_.data() + offset);
  Storage* address = storage.get();
  // The piece comes back with the last tensor that uses it.
  return {address, [arena = shared_from_this(), storage = std::move(storage), offset,
                    wanted](Storage*) { arena->release(offset, wanted); }};
}

void Arena::release(std::size_t offset, std::size_t nbytes) {
  auto piece = free_.emplace(offset, nbytes).first;
  const auto next = std::next(piece);
  if (next != free_.end() && piece->first + piece->second == next->first) {
    piece->second += next->second;
    free_.erase(next);
  }
  if (piece != free_.begin()) {
    const auto before = std::prev(piece);
    if (before->first + before->second == piece->first) {
      before->second += piece->second;
      free_.erase(piece);
    }
  }
}

}  // namespace fsdptrain::comm
