#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/board/board.h"

namespace fsdptrain::comm {

// Mailboxes grow with the square of it.
inline constexpr int kMaxRanksPerHost = 256;

// Of each rank's arena where there are so many ranks: as much as the machine has, since a page
// takes memory when it is first written, but all together within what a process can map.
std::uint64_t arena_bytes(int num_ranks, std::uint64_t machine_bytes);
// Of this machine.
std::uint64_t arena_bytes(int num_ranks);

// The memory of the ranks of one host: the boards of their two links, slots for staging, and one
// arena for each rank, all in one sparse memfd. It has no name, so none is left when the last
// process ends. Whoever starts the ranks makes it and hands the descriptor down; each rank maps it.
class Segment {
 public:
  struct Shape {
    int num_ranks = 1;
    // Of each rank's arena; pages cost memory when they are first written.
    std::uint64_t arena_bytes = 0;
  };

  // A descriptor that survives exec; the caller closes it. ConfigError for a shape that is none,
  // IoError naming the system's reason.
  static int create(const Shape& shape);

  // Maps what create() made; the descriptor may be closed. DataError for anything else.
  explicit Segment(int descriptor);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  const Shape& shape() const { return shape_; }
  Board training() const;
  Board control() const;
  std::span<std::byte> arena(int rank) const;

  // For whoever started the ranks: this one's process has ended, or is about to be ended. All
  // others end with "rank R failed: text", unless one had failed before.
  void report_end(int rank, std::string_view text) const noexcept;

 private:
  std::span<std::byte> bytes_;
  Shape shape_;
};

}  // namespace fsdptrain::comm
