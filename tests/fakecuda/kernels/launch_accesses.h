#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdptrain::fakecuda {

// What the threads of one launch touch. They run one after the other here; on a GPU in any order
// and at once, so two of them that touch the same byte, one of which writes, are a race.
class LaunchAccesses {
 public:
  // Threads are numbered over the whole grid.
  void access(const void* data, std::size_t nbytes, bool is_write, std::uint32_t thread);

  // The first two threads that were in a race.
  struct Race {
    std::uintptr_t address = 0;
    std::uint32_t first = 0;  // kManyThreads: several, which read it
    bool first_wrote = false;
    std::uint32_t second = 0;
    bool second_wrote = false;
  };
  static constexpr std::uint32_t kManyThreads = UINT32_MAX - 1;
  const std::optional<Race>& race() const { return race_; }

  struct Bytes {
    std::uintptr_t begin = 0;
    std::size_t nbytes = 0;
  };
  // As few ranges as possible, by address. Read are the bytes whose value from before the launch
  // was read.
  std::vector<Bytes> read() const;
  std::vector<Bytes> written() const;

 private:
  static constexpr std::uintptr_t kPage = 4096;
  static constexpr std::uint32_t kNobody = UINT32_MAX;

  struct Cell {
    std::uint32_t writer = kNobody;
    // Before it was written.
    std::uint32_t reader = kNobody;
  };
  using Page = std::array<Cell, kPage>;

  Page& page_of(std::uintptr_t address);
  void read_byte(Cell& cell, std::uintptr_t address, std::uint32_t thread);
  void write_byte(Cell& cell, std::uintptr_t address, std::uint32_t thread);
  void found(const Race& race);
  template <class Touched>
  std::vector<Bytes> ranges(Touched touched) const;

  std::map<std::uintptr_t, Page> pages_;
  // Those that were used last: operands lie in different ones.
  struct Recent {
    std::uintptr_t begin = 0;
    Page* page = nullptr;
  };
  std::array<Recent, 16> recent_{};
  std::optional<Race> race_;
};

}  // namespace fsdptrain::fakecuda
