#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakecuda/range.h"
#include "tests/fakecuda/report.h"
#include "tests/fakecuda/shadow.h"

namespace fsdptrain::fakecuda {

using Address = std::uintptr_t;

enum class MemoryKind { Device, Pinned, Registered };

struct Allocation {
  Address begin = 0;
  std::size_t nbytes = 0;
  MemoryKind kind = MemoryKind::Device;
  int device = 0;
  // Counted from 1 for each kind.
  std::uint64_t number = 0;
  std::string name = {};
  CallSite site = {};
  Shadow shadow;
  // Where it was freed; its addresses are not given out again.
  std::optional<CallSite> freed = {};

  Address end() const { return begin + nbytes; }
};

// "cudaMalloc #3 'weights' (1024 bytes, device 0)"
std::string to_string(const Allocation& allocation);

// Addresses of one kind of memory, given out once each.
class Arena {
 public:
  // At least `capacity` bytes of address space, which nobody may touch.
  explicit Arena(std::size_t capacity);
  Arena(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  // Aligned to `alignment`, with at least kRedzone unused bytes on both sides; 0 if none is left.
  Address take(std::size_t nbytes, std::size_t alignment);
  bool contains(Address address) const { return address - begin_ < capacity_; }
  // All that was taken.
  Address begin() const { return begin_; }
  std::size_t used() const { return used_; }
  // Gives the pages that lie within the range back to the system.
  void release(Address begin, std::size_t nbytes);

  static constexpr std::size_t kRedzone = 256;

 private:
  Address begin_ = 0;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
};

// All memory that the fake knows: of the devices, pinned, and registered memory of others.
class Memory {
 public:
  Memory(int num_devices, std::size_t device_memory, bool protects);

  // Null if a device has not so much left.
  Allocation* allocate_device(int device, std::size_t nbytes, const CallSite& site);
  Allocation* allocate_pinned(std::size_t nbytes, const CallSite& site);
  Allocation* add_registered(Address begin, std::size_t nbytes, const CallSite& site);
  // The allocation stays known as freed, or, if registered, is forgotten.
  void free(Allocation& allocation, const CallSite& site);

  // The allocation around an address, live or freed, with what lies at most a redzone beside it;
  // null for other memory.
  Allocation* find(Address address);
  // Whether only the fake gives out such addresses.
  bool is_ours(Address address) const;
  std::map<Address, Allocation>& all() { return allocations_; }

  std::size_t free_bytes(int device) const;
  std::size_t total_bytes() const { return device_memory_; }

  // What the ranges name of device memory, allocation by allocation from the first to the last
  // byte, becomes accessible until hide(); all of it if there are no ranges.
  void expose(const std::vector<Range>& ranges);
  void hide();

 private:
  void expose(Address begin, Address end);

  Allocation* add(Allocation allocation);

  std::size_t device_memory_;
  bool protects_;
  // Whole pages.
  std::vector<std::pair<Address, Address>> exposed_;
  std::vector<Arena> devices_;
  Arena pinned_;
  std::vector<std::size_t> live_bytes_;
  std::map<MemoryKind, std::uint64_t> numbers_;
  std::map<Address, Allocation> allocations_;
};

}  // namespace fsdptrain::fakecuda
