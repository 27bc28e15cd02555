#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

// What memory is for, how much of it is in use, and how requests are rounded.
namespace fsdptrain {

enum class MemoryCategory : std::uint8_t {
  Parameter,
  Gradient,
  Optimizer,
  Activation,
  Workspace,
  Data,
  Communication,
};
inline constexpr std::size_t kNumMemoryCategories = 7;

std::string_view name_of(MemoryCategory category);

// All figures in bytes of whole size classes.
struct MemoryCounters {
  std::array<std::int64_t, kNumMemoryCategories> live{};
  std::array<std::int64_t, kNumMemoryCategories> peak{};
  std::int64_t live_total = 0;
  std::int64_t peak_total = 0;
  // Blocks and bytes asked of the system so far, and bytes held now (in use or cached).
  std::int64_t raw_allocations = 0;
  std::int64_t raw_bytes = 0;

  std::int64_t live_of(MemoryCategory category) const {
    return live[static_cast<std::size_t>(category)];
  }
  std::int64_t peak_of(MemoryCategory category) const {
    return peak[static_cast<std::size_t>(category)];
  }
  // More in use, or less.
  void add(std::int64_t nbytes, MemoryCategory category);
  // Starts a new measurement: every peak becomes the live value.
  void reset_peaks();

  friend bool operator==(const MemoryCounters&, const MemoryCounters&) = default;
};

// The alignment of every block, and the smallest size class.
inline constexpr std::size_t kAlignment = 64;

// The bytes that a request takes: the one rounding rule of the project. A multiple of
// kAlignment; above 512 bytes at most 1/8 more than asked for. OutOfMemoryError above 2^62.
std::size_t size_class(std::size_t nbytes);

}  // namespace fsdptrain
