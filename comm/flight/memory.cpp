#include "comm/flight/memory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "comm/flight/format.h"
#include "comm/ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/host_name.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {
namespace {

std::string reason() {
  return std::generic_category().message(errno);
}

void check_identity(const FlightIdentity& identity) {
  check<ConfigError>(identity.world_size >= 1 && identity.world_size <= kMaxWorldSize,
                     "flight ring: the world size must be 1 to {}, got {}", kMaxWorldSize,
                     identity.world_size);
  check<ConfigError>(identity.rank >= 0 && identity.rank < identity.world_size,
                     "flight ring: the rank must be 0 to {}, got {}", identity.world_size - 1,
                     identity.rank);
  check<ConfigError>(
      identity.host.size() <= flight::kMaxHost &&
          std::ranges::all_of(identity.host, [](char c) { return c >= ' ' && c <= '~'; }),
      "flight ring: the host must have at most {} printable characters, got {}", flight::kMaxHost,
      in_quotes(identity.host));
}

flight::RawHeader header_of(const FlightIdentity& identity, const FlightMemory::Options& options) {
  flight::RawHeader raw{};
  std::ranges::copy(flight::kMagic, raw.magic.begin());
  raw.version = flight::kVersion;
  raw.record_nbytes = sizeof(flight::RawRecord);
  raw.capacity = options.capacity;
  raw.names_capacity = options.names_capacity;
  raw.attempt = identity.attempt;
  raw.rank = identity.rank;
  raw.world_size = identity.world_size;
  std::ranges::copy(identity.host, raw.host.begin());
  return raw;
}

}  // namespace

FlightMemory::FlightMemory(int descriptor, std::uint32_t capacity, std::uint32_t names_capacity)
    : descriptor_(descriptor), capacity_(capacity), names_capacity_(names_capacity) {}

FlightMemory::FlightMemory(FlightMemory&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      capacity_(other.capacity_),
      names_capacity_(other.names_capacity_),
      address_(std::exchange(other.address_, nullptr)) {}

FlightMemory::~FlightMemory() {
  if (address_ != nullptr) {
    ::munmap(address_, nbytes());
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

std::size_t FlightMemory::nbytes() const {
  return flight::nbytes_of_records(capacity_) + names_capacity_;
}

void FlightMemory::map() {
  void* const address =
      ::mmap(nullptr, nbytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor_, 0);
  check<IoError>(address != MAP_FAILED, "flight ring: mapping {} bytes failed: {}", nbytes(),
                 reason());
  address_ = static_cast<std::byte*>(address);
}

FlightMemory FlightMemory::create(const FlightIdentity& identity, const Options& options) {
  FlightIdentity named = identity;
  if (named.host.empty()) {
    named.host = host_name();
  }
  check_identity(named);
  check<ConfigError>(options.capacity >= 1 && options.capacity <= kMaxFlightCapacity,
                     "flight ring: the capacity must be 1 to {} records, got {}",
                     kMaxFlightCapacity, options.capacity);
  check<ConfigError>(options.names_capacity <= kMaxFlightNames,
                     "flight ring: names have room for at most {} bytes, got {}", kMaxFlightNames,
                     options.names_capacity);
  const std::string name = fmt::format("fsdptrain-flight-{}", named.rank);
  const unsigned flags = MFD_ALLOW_SEALING | (options.inheritable ? 0U : MFD_CLOEXEC);
  const int descriptor = ::memfd_create(name.c_str(), flags);
  check<IoError>(descriptor >= 0, "flight ring: making shared memory failed: {}", reason());
  FlightMemory memory(descriptor, options.capacity, options.names_capacity);
  const std::size_t nbytes = memory.nbytes();
  // Taken now: a first touch that finds no memory would end the process.
  int error = EINTR;
  while (error == EINTR) {
    error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(nbytes));
  }
  check<IoError>(error == 0, "flight ring: taking {} bytes of shared memory failed: {}", nbytes,
                 std::generic_category().message(error));
  // Who else has the descriptor cannot take bytes away that are mapped here.
  const bool is_sealed =
      ::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  check<IoError>(is_sealed, "flight ring: sealing the size of its memory failed: {}", reason());
  memory.map();
  const flight::RawHeader header = header_of(named, options);
  std::memcpy(memory.address_, &header, sizeof(header));
  return memory;
}

FlightMemory FlightMemory::adopt(int descriptor, const FlightIdentity& expected) {
  check_identity(expected);
  FlightMemory memory(descriptor, 0, 0);
  const std::string name = fmt::format("flight ring in descriptor {}", descriptor);
  const FlightHeader header = flight::read_header(descriptor, name);
  const FlightIdentity& found = header.identity;
  check<ConfigError>(
      found.rank == expected.rank && found.world_size == expected.world_size &&
          found.attempt == expected.attempt,
      "{}: must be of rank {} of {}, attempt {}, got one of rank {} of {}, attempt {}", name,
      expected.rank, expected.world_size, expected.attempt, found.rank, found.world_size,
      found.attempt);
  const bool is_private = ::fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0;
  check<IoError>(is_private, "{}: closing it to programs started from here failed: {}", name,
                 reason());
  memory.capacity_ = header.capacity;
  memory.names_capacity_ = header.names_capacity;
  memory.map();
  return memory;
}

}  // namespace fsdptrain::comm
