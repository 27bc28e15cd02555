#include "tests/fakecuda/memory.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <sys/mman.h>
#include <utility>

#include "runtime/base/error.h"

namespace fsdptrain::fakecuda {
namespace {

constexpr std::size_t kPage = 4096;
// NaN in every floating-point type: values that nobody wrote are seen in results, too.
constexpr unsigned char kFill = 0xff;
// Addresses are used once, so that there are more of them than bytes at a time.
constexpr std::size_t kAddressesPerByte = 16;
constexpr std::size_t kMoreAddresses = std::size_t{1} << 30;
constexpr std::size_t kPinnedAddresses = std::size_t{64} << 30;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void* as_pointer(Address address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address inside of a mapping of ours.
  return reinterpret_cast<void*>(address);
}

}  // namespace

std::string to_string(const Allocation& allocation) {
  const std::string name = allocation.name.empty() ? "" : fmt::format(" '{}'", allocation.name);
  switch (allocation.kind) {
    case MemoryKind::Device:
      return fmt::format("cudaMalloc #{}{} ({} bytes, device {})", allocation.number, name,
                         allocation.nbytes, allocation.device);
    case MemoryKind::Pinned:
      return fmt::format("cudaMallocHost #{}{} ({} bytes)", allocation.number, name,
                         allocation.nbytes);
    case MemoryKind::Registered:
      return fmt::format("cudaHostRegister #{}{} ({} bytes)", allocation.number, name,
                         allocation.nbytes);
  }
  fail("memory of no kind");
}

Arena::Arena(std::size_t capacity) : capacity_(round_up(capacity, kPage)) {
  void* mapped =
      mmap(nullptr, capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check<OutOfMemoryError>(mapped != MAP_FAILED, "fake CUDA: no {} bytes of address space",
                          capacity_);
  begin_ = reinterpret_cast<Address>(mapped);
}

Arena::Arena(Arena&& other) noexcept
    : begin_(other.begin_), capacity_(std::exchange(other.capacity_, 0)), used_(other.used_) {}

Arena::~Arena() {
  if (capacity_ != 0) {
    munmap(as_pointer(begin_), capacity_);
  }
}

Address Arena::take(std::size_t nbytes, std::size_t alignment) {
  const std::size_t offset = round_up(used_ + kRedzone, alignment);
  if (offset > capacity_ || nbytes > capacity_ - offset || capacity_ - offset - nbytes < kRedzone) {
    return 0;
  }
  used_ = offset + nbytes + kRedzone;
  return begin_ + offset;
}

void Arena::release(Address begin, std::size_t nbytes) {
  const Address first = round_up(begin, kPage);
  const Address last = (begin + nbytes) / kPage * kPage;
  if (first < last) {
    madvise(as_pointer(first), last - first, MADV_DONTNEED);
  }
}

Memory::Memory(int num_devices, std::size_t device_memory, bool protects)
    : device_memory_(device_memory),
      protects_(protects),
      pinned_(kPinnedAddresses),
      live_bytes_(static_cast<std::size_t>(num_devices), 0) {
  for (int device = 0; device < num_devices; ++device) {
    devices_.emplace_back(kAddressesPerByte * device_memory + kMoreAddresses);
  }
}

Allocation* Memory::add(Allocation allocation) {
  allocation.number = ++numbers_[allocation.kind];
  const Address begin = allocation.begin;
  return &allocations_.insert_or_assign(begin, std::move(allocation)).first->second;
}

Allocation* Memory::allocate_device(int device, std::size_t nbytes, const CallSite& site) {
  const auto index = static_cast<std::size_t>(device);
  if (nbytes > free_bytes(device)) {
    return nullptr;
  }
  // Bytes of their own pages can be exposed without their neighbours.
  const Address begin = devices_[index].take(nbytes, nbytes < kPage ? 256 : kPage);
  check<OutOfMemoryError>(begin != 0, "fake CUDA: all addresses of device {} were given out once",
                          device);
  live_bytes_[index] += nbytes;
  expose(begin, begin + nbytes);
  std::fill_n(static_cast<unsigned char*>(as_pointer(begin)), nbytes, kFill);
  hide();
  return add({.begin = begin,
              .nbytes = nbytes,
              .kind = MemoryKind::Device,
              .device = device,
              .site = site,
              .shadow = Shadow(nbytes, false)});
}

Allocation* Memory::allocate_pinned(std::size_t nbytes, const CallSite& site) {
  const Address begin = pinned_.take(nbytes, kPage);
  check<OutOfMemoryError>(begin != 0, "fake CUDA: all pinned addresses were given out once");
  // Not the page of the redzone.
  mprotect(as_pointer(begin), round_up(nbytes, kPage), PROT_READ | PROT_WRITE);
  std::fill_n(static_cast<unsigned char*>(as_pointer(begin)), nbytes, kFill);
  // What the host writes is not seen: all of it may be initialised.
  return add({.begin = begin,
              .nbytes = nbytes,
              .kind = MemoryKind::Pinned,
              .site = site,
              .shadow = Shadow(nbytes, true)});
}

Allocation* Memory::add_registered(Address begin, std::size_t nbytes, const CallSite& site) {
  return add({.begin = begin,
              .nbytes = nbytes,
              .kind = MemoryKind::Registered,
              .site = site,
              .shadow = Shadow(nbytes, true)});
}

void Memory::free(Allocation& allocation, const CallSite& site) {
  switch (allocation.kind) {
    case MemoryKind::Device:
      live_bytes_[static_cast<std::size_t>(allocation.device)] -= allocation.nbytes;
      devices_[static_cast<std::size_t>(allocation.device)].release(allocation.begin,
                                                                    allocation.nbytes);
      break;
    case MemoryKind::Pinned:
      pinned_.release(allocation.begin, allocation.nbytes);
      mprotect(as_pointer(allocation.begin), round_up(allocation.nbytes, kPage), PROT_NONE);
      break;
    case MemoryKind::Registered:
      allocations_.erase(allocation.begin);
      return;
  }
  allocation.freed = site;
  allocation.shadow = Shadow(allocation.nbytes, false);
}

Allocation* Memory::find(Address address) {
  const auto next = allocations_.upper_bound(address);
  if (next != allocations_.begin()) {
    Allocation& before = std::prev(next)->second;
    const std::size_t beside = before.kind == MemoryKind::Registered ? 0 : Arena::kRedzone;
    if (address < before.end() + beside) {
      return &before;
    }
  }
  if (next != allocations_.end() && next->second.kind != MemoryKind::Registered &&
      next->first - address <= Arena::kRedzone) {
    return &next->second;
  }
  return nullptr;
}

bool Memory::is_ours(Address address) const {
  const auto holds = [&](const Arena& arena) { return arena.contains(address); };
  return std::ranges::any_of(devices_, holds) || holds(pinned_);
}

std::size_t Memory::free_bytes(int device) const {
  return device_memory_ - live_bytes_[static_cast<std::size_t>(device)];
}

void Memory::expose(Address begin, Address end) {
  const Address first = begin / kPage * kPage;
  const Address last = round_up(end, kPage);
  if (first < last) {
    mprotect(as_pointer(first), last - first, PROT_READ | PROT_WRITE);
    exposed_.emplace_back(first, last);
  }
}

void Memory::expose(const std::vector<Range>& ranges) {
  if (ranges.empty()) {
    for (const Arena& arena : devices_) {
      expose(arena.begin(), arena.begin() + arena.used());
    }
    return;
  }
  std::map<const Allocation*, std::pair<Address, Address>> touched;
  for (const Range& range : ranges) {
    const auto begin = reinterpret_cast<Address>(range.data);
    const Allocation* allocation = find(begin);
    if (allocation != nullptr && allocation->kind == MemoryKind::Device) {
      auto& [first, last] = touched.try_emplace(allocation, begin, begin).first->second;
      first = std::min(first, begin);
      last = std::max(last, begin + range.nbytes);
    }
  }
  for (const auto& [allocation, bytes] : touched) {
    expose(bytes.first, bytes.second);
  }
}

void Memory::hide() {
  if (protects_) {
    for (const auto& [begin, end] : exposed_) {
      mprotect(as_pointer(begin), end - begin, PROT_NONE);
    }
  }
  exposed_.clear();
}

}  // namespace fsdptrain::fakecuda
