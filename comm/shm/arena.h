#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/tensor/storage.h"

namespace fsdptrain::comm {

// Hands out pieces of a range of memory and takes them back. Used by one thread; what it handed out
// keeps it alive.
class Arena final : public BlockSource, public std::enable_shared_from_this<Arena> {
 public:
  // `owner` keeps the memory; `name` is what errors call it.
  Arena(std::span<std::byte> memory, std::shared_ptr<const void> owner, std::string name);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() override = default;

  // A piece that is counted by the host's allocator of the bound rank context.
  std::shared_ptr<Storage> allocate_storage(std::size_t nbytes);

  // In whole size classes. OutOfMemoryError naming what is left, in all and at most in one piece.
  std::byte* allocate(std::size_t nbytes) override;
  void give_back(std::byte* data, std::vector<Event> uses) noexcept override;

 private:
  std::span<std::byte> memory_;
  std::shared_ptr<const void> owner_;
  std::string name_;
  std::shared_ptr<DeviceApi> host_;
  // Pieces by offset: those that are free, of which no two touch, and those in use.
  std::map<std::size_t, std::size_t> free_;
  std::map<std::size_t, std::size_t> used_;
};

}  // namespace fsdptrain::comm
