#pragma once

#include <cstdint>

#include "runtime/base/host_device.h"

// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011): 128 random bits as a pure function of a 128-bit counter
// and a 64-bit key, equal on every device.
namespace fsdptrain {

struct Philox {
  std::uint32_t word[4];
};

FSDPTRAIN_HOST_DEVICE Philox philox(std::uint64_t counter_low, std::uint64_t counter_high,
                                    std::uint64_t key) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high);
  std::uint32_t c3 = static_cast<std::uint32_t>(counter_high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The middle of one of 2^32 equal cells of (0, 1): never 0 or 1.
FSDPTRAIN_HOST_DEVICE double to_unit_interval(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

}  // namespace fsdptrain
