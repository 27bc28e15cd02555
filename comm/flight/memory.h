#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fsdptrain::comm {

struct FlightIdentity {
  int rank = 0;
  int world_size = 1;
  // How often the run was restarted.
  std::uint32_t attempt = 0;
  // At most 64 printable characters. Empty: the name of this host.
  std::string host = {};
};

inline constexpr std::uint32_t kDefaultFlightCapacity = 4096;
inline constexpr std::uint32_t kMaxFlightCapacity = 1 << 20;
// For the names of about 1,500 groups of parameters.
inline constexpr std::uint32_t kDefaultFlightNames = 64 << 10;
inline constexpr std::uint32_t kMaxFlightNames = 16 << 20;

// The memory of a ring: a descriptor, closed with its owner, and its mapping. A launcher makes one
// per worker, lets the worker inherit it, and reads it whatever became of the worker.
class FlightMemory {
 public:
  struct Options {
    // In records of 128 bytes.
    std::uint32_t capacity = kDefaultFlightCapacity;
    // In bytes, for the names of groups of parameters; those that do not fit stay numbers.
    std::uint32_t names_capacity = kDefaultFlightNames;
    // Whether the descriptor stays open in programs that this process starts.
    bool inheritable = false;
  };

  // ConfigError for an identity or a capacity that cannot be, IoError where the system refuses.
  static FlightMemory create(const FlightIdentity& identity) { return create(identity, Options{}); }
  static FlightMemory create(const FlightIdentity& identity, const Options& options);
  // Owns a descriptor that this process inherited, and passes it on to no other program.
  // DataError if it is of no ring, ConfigError if it is of another rank than `expected`, whose
  // host is not compared.
  static FlightMemory adopt(int descriptor, const FlightIdentity& expected);

  FlightMemory(FlightMemory&& other) noexcept;
  FlightMemory& operator=(FlightMemory&&) = delete;
  FlightMemory(const FlightMemory&) = delete;
  FlightMemory& operator=(const FlightMemory&) = delete;
  ~FlightMemory();

  int descriptor() const { return descriptor_; }
  std::uint32_t capacity() const { return capacity_; }

 private:
  friend class FlightRing;
  FlightMemory(int descriptor, std::uint32_t capacity, std::uint32_t names_capacity);
  std::size_t nbytes() const;
  void map();

  int descriptor_;
  std::uint32_t capacity_;
  std::uint32_t names_capacity_;
  std::byte* address_ = nullptr;
};

}  // namespace fsdptrain::comm
