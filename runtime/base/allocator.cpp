#include "runtime/base/allocator.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "runtime/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace fsdptrain {
namespace {

// Cached blocks and the slack behind a request are out of bounds for AddressSanitizer.
void mark_accessible([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t nbytes,
                     [[maybe_unused]] std::size_t block_bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(data, block_bytes);
  ASAN_UNPOISON_MEMORY_REGION(data, nbytes);
#endif
}

// Null if the system has no more.
std::byte* system_block(std::size_t nbytes) {
  return static_cast<std::byte*>(
      ::operator new (nbytes, std::align_val_t{kAlignment}, std::nothrow));
}

}  // namespace

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::Parameter:
      return "parameter";
    case MemoryCategory::Gradient:
      return "gradient";
    case MemoryCategory::Optimizer:
      return "optimizer";
    case MemoryCategory::Activation:
      return "activation";
    case MemoryCategory::Workspace:
      return "workspace";
    case MemoryCategory::Data:
      return "data";
    case MemoryCategory::Communication:
      return "communication";
  }
  return "invalid category";
}

std::size_t size_class(std::size_t nbytes) {
  constexpr std::size_t kLargest = std::size_t{1} << 62;
  check<OutOfMemoryError>(nbytes <= kLargest, "allocate: {} bytes are more than {} can hold",
                          nbytes, "any machine");
  const std::size_t step =
      std::max(kAlignment, std::bit_floor(std::max<std::size_t>(nbytes, 1)) / 8);
  return std::max(kAlignment, (nbytes + step - 1) / step * step);
}

Allocation::Allocation(Allocation&& other) noexcept
    : allocator_(std::move(other.allocator_)),
      data_(std::exchange(other.data_, nullptr)),
      nbytes_(other.nbytes_),
      category_(other.category_) {}

Allocation& Allocation::operator=(Allocation&& other) noexcept {
  if (this != &other) {
    reset();
    allocator_ = std::move(other.allocator_);
    data_ = std::exchange(other.data_, nullptr);
    nbytes_ = other.nbytes_;
    category_ = other.category_;
  }
  return *this;
}

void Allocation::reset() {
  if (allocator_) {
    allocator_->give_back(data_, nbytes_, category_);
    allocator_.reset();
    data_ = nullptr;
  }
}

std::shared_ptr<Allocator> Allocator::create(Device device) {
  check<DeviceError>(device.type != DeviceType::Cuda, "allocator: no memory on {} in this build",
                     device);
  return std::shared_ptr<Allocator>(new Allocator(device));
}

Allocator::~Allocator() {
  release_cached();
}

Allocation Allocator::allocate(std::size_t nbytes, MemoryCategory category) {
  const std::size_t block_bytes = size_class(nbytes);
  Allocation allocation;
  allocation.data_ = take_block(block_bytes);
  allocation.allocator_ = shared_from_this();
  allocation.nbytes_ = nbytes;
  allocation.category_ = category;
  if (allocation.data_ != nullptr) {
    mark_accessible(allocation.data_, nbytes, block_bytes);
  }
  count(static_cast<std::int64_t>(block_bytes), category);
  return allocation;
}

std::byte* Allocator::take_block(std::size_t block_bytes) {
  std::vector<std::byte*>& cached = cache_[block_bytes];
  if (!cached.empty()) {
    std::byte* const block = cached.back();
    cached.pop_back();
    return block;
  }
  std::byte* block = nullptr;
  if (device_.type == DeviceType::Cpu) {
    block = system_block(block_bytes);
    if (block == nullptr) {
      release_cached();
      block = system_block(block_bytes);
    }
    check<OutOfMemoryError>(
        block != nullptr,
        "allocate: the system has no {} bytes more on {}; {} are in use and {} held in all",
        block_bytes, device_, counters_.live_total, counters_.raw_bytes);
  }
  ++counters_.raw_allocations;
  counters_.raw_bytes += static_cast<std::int64_t>(block_bytes);
  return block;
}

void Allocator::give_back(std::byte* data, std::size_t nbytes, MemoryCategory category) {
  const std::size_t block_bytes = size_class(nbytes);
  if (data != nullptr) {
    mark_accessible(data, 0, block_bytes);
  }
  cache_[block_bytes].push_back(data);
  count(-static_cast<std::int64_t>(block_bytes), category);
}

void Allocator::count(std::int64_t nbytes, MemoryCategory category) {
  const auto index = static_cast<std::size_t>(category);
  counters_.live[index] += nbytes;
  counters_.peak[index] = std::max(counters_.peak[index], counters_.live[index]);
  counters_.live_total += nbytes;
  counters_.peak_total = std::max(counters_.peak_total, counters_.live_total);
}

void Allocator::reset_peaks() {
  counters_.peak = counters_.live;
  counters_.peak_total = counters_.live_total;
}

void Allocator::release_cached() {
  for (auto& [block_bytes, blocks] : cache_) {
    for (std::byte* block : blocks) {
      if (block != nullptr) {
        mark_accessible(block, block_bytes, block_bytes);
        ::operator delete (block, std::align_val_t{kAlignment});
      }
      counters_.raw_bytes -= static_cast<std::int64_t>(block_bytes);
    }
  }
  cache_.clear();
}

}  // namespace fsdptrain
