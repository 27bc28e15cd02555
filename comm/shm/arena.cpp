#include "comm/shm/arena.h"

#include <algorithm>
#include <utility>

#include "runtime/base/allocator.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm {

Arena::Arena(std::span<std::byte> memory, std::shared_ptr<const void> owner, std::string name)
    : memory_(memory),
      owner_(std::move(owner)),
      name_(std::move(name)),
      host_(make_host_api(Device::cpu())) {
  if (!memory_.empty()) {
    free_.emplace(0, memory_.size());
  }
}

std::shared_ptr<Storage> Arena::allocate_storage(std::size_t nbytes) {
  Allocator& allocator = current_context().allocator(Device::cpu());
  return Storage::holding(
      Device::cpu(), nbytes,
      allocator.allocate_from(shared_from_this(), nbytes, MemoryCategory::Communication));
}

std::byte* Arena::allocate(std::size_t nbytes) {
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
  used_.emplace(offset, wanted);
  return memory_.data() + offset;
}

void Arena::give_back(std::byte* data, std::vector<Event> /*uses*/) noexcept {
  const auto piece_in_use = used_.find(static_cast<std::size_t>(data - memory_.data()));
  const auto [offset, nbytes] = *piece_in_use;
  used_.erase(piece_in_use);
  // What a piece is next need not begin or end where this one did.
  host_->mark_block(data, nbytes, nbytes, nullptr);
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
