#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>

#include "runtime/tensor/storage.h"

namespace fsdptrain::comm {

// Hands out pieces of a range of memory and takes them back. Used by one thread; what it handed out
// keeps it alive.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // `owner` keeps the memory; `name` is what errors call it.
  Arena(std::span<std::byte> memory, std::shared_ptr<const void> owner, std::string name);

  // In whole size classes. OutOfMemoryError naming what is left, in all and at most in one piece.
  std::shared_ptr<Storage> allocate(std::size_t nbytes);

 private:
  void release(std::size_t offset, std::size_t nbytes);

  std::span<std::byte> memory_;
  std::shared_ptr<const void> owner_;
  std::string name_;
  // Free pieces, by offset; no two touch.
  std::map<std::size_t, std::size_t> free_;
};

}  // namespace fsdptrain::comm
