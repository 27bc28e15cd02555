#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/device.h"

// Memory of one rank on one device. Blocks are cached by size class and never returned to the
// system before release_cached() or destruction, so from the second step on there are no raw
// allocations. The meta allocator does the same arithmetic without memory: a run on meta and a
// real run count the same bytes. One thread uses an allocator: the one its rank context is
// bound to.
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

  friend bool operator==(const MemoryCounters&, const MemoryCounters&) = default;
};

// The alignment of every block, and the smallest size class.
inline constexpr std::size_t kAlignment = 64;

// The bytes that a request takes: the one rounding rule of the project. A multiple of
// kAlignment; above 512 bytes at most 1/8 more than asked for. OutOfMemoryError above 2^62.
std::size_t size_class(std::size_t nbytes);

class Allocator;

// A block in use; its destruction returns it to the allocator's cache.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() { reset(); }

  void reset();
  explicit operator bool() const { return allocator_ != nullptr; }
  // Null on the meta device.
  std::byte* data() const { return data_; }

 private:
  friend class Allocator;

  std::shared_ptr<Allocator> allocator_;
  std::byte* data_ = nullptr;
  std::size_t nbytes_ = 0;
  MemoryCategory category_ = MemoryCategory::Activation;
};

class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  // For the CPU or the meta device; DeviceError for any other.
  static std::shared_ptr<Allocator> create(Device device);

  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  ~Allocator();

  // At least `nbytes`, not initialised, also for 0; OutOfMemoryError with the figures if the
  // system has no more, even after the cached blocks went back to it.
  Allocation allocate(std::size_t nbytes, MemoryCategory category);

  const MemoryCounters& counters() const { return counters_; }
  // Starts a new measurement: every peak becomes the live value.
  void reset_peaks();
  // Gives cached blocks back to the system.
  void release_cached();

 private:
  friend class Allocation;

  explicit Allocator(Device device) : device_(device) {}
  std::byte* take_block(std::size_t block_bytes);
  void give_back(std::byte* data, std::size_t nbytes, MemoryCategory category);
  void count(std::int64_t nbytes, MemoryCategory category);

  Device device_;
  MemoryCounters counters_;
  std::map<std::size_t, std::vector<std::byte*>> cache_;
};

}  // namespace fsdptrain
