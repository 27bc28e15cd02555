#pragma once

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

}  // namespace fsdptrain::kernels
