#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace fsdptrain::fakecuda {

// Of every byte of one allocation: who wrote it last, who has read it since, whether anybody ever
// wrote it. Kept for intervals of bytes that agree, so that its size follows the number of
// different accesses and not the number of bytes. Operations are numbers from 1.
class Shadow {
 public:
  // What an access finds, once per earlier operation.
  struct Visitor {
    // Whether `earlier` is known to have happened before the access.
    std::function<bool(std::uint32_t earlier)> is_ordered;
    std::function<void(std::uint32_t earlier, bool earlier_wrote, std::size_t offset)> conflict;
    // The first byte that is read before anybody wrote it.
    std::function<void(std::size_t offset)> uninitialised;
    // The first byte of an access that belongs to nobody.
    std::function<void(std::size_t offset)> unowned = {};
  };

  Shadow(std::size_t nbytes, bool initialised);

  // REQUIRES: offset + nbytes is within the allocation.
  void read(std::size_t offset, std::size_t nbytes, std::uint32_t op, const Visitor& visitor);
  void write(std::size_t offset, std::size_t nbytes, std::uint32_t op, const Visitor& visitor);
  // As a write of all; after it, the first `in_use` bytes hold nothing and the others belong to
  // nobody.
  void mark(std::size_t offset, std::size_t nbytes, std::size_t in_use, std::uint32_t op,
            const Visitor& visitor);
  // Compares all bytes with a write that is not remembered.
  void check_all(const Visitor& visitor) const;

  std::size_t num_intervals() const { return intervals_.size(); }

 private:
  struct Interval {
    std::size_t end = 0;
    std::uint32_t writer = 0;
    // Those that no other one of them is ordered after.
    std::vector<std::uint32_t> readers;
    bool initialised = false;
    bool unowned = false;

    bool agrees_with(const Interval& other) const {
      return writer == other.writer && initialised == other.initialised &&
             unowned == other.unowned && readers == other.readers;
    }
  };
  using Intervals = std::map<std::size_t, Interval>;

  Intervals::iterator cut(std::size_t offset);
  void write_after(Intervals::iterator at, std::uint32_t op, const Visitor& visitor);
  void merge(std::size_t begin, std::size_t end);

  Intervals intervals_;
};

}  // namespace fsdptrain::fakecuda
