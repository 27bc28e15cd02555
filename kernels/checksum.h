#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/isa.h"

namespace fsdptrain::kernels {

// XXH3-64 (xxHash 0.8, no seed) of bytes in memory of the host, on the calling thread: against
// damage, not against an attacker. The same in every variant; they differ in speed.
std::uint64_t checksum64(Isa isa, std::span<const std::byte> bytes);
// In the variant of select_isa(), which is asked once in a process.
std::uint64_t checksum64(std::span<const std::byte> bytes);

// The same of bytes that come in parts, so that each is looked at while it is in a cache. One
// thread uses it.
class Checksum64 {
 public:
  explicit Checksum64(Isa isa);
  // In the variant of select_isa().
  Checksum64();

  void append(std::span<const std::byte> bytes);
  // Of all that was appended so far.
  std::uint64_t value() const;

 private:
  // What the library needs, which its variants check.
  static constexpr std::size_t kStateBytes = 576;
  static constexpr std::size_t kStateAlign = 64;

  Isa isa_;
  alignas(kStateAlign) std::array<std::byte, kStateBytes> state_;
};

}  // namespace fsdptrain::kernels
