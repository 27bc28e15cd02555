#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "comm/link/link.h"
#include "runtime/tensor/storage.h"

namespace fsdptrain::comm {

// What the ranks that share a board can read of each other without staging.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  // What peers know these bytes of this rank by; nothing if they cannot read them.
  virtual std::optional<std::uint64_t> export_address(std::span<const std::byte> bytes) = 0;
  // Bytes of a peer; PeerError if they are not in its memory.
  virtual std::span<const std::byte> import_bytes(int peer, std::uint64_t address,
                                                  std::uint64_t nbytes) = 0;
  // Bytes that export_address() knows.
  virtual std::shared_ptr<Storage> allocate(std::size_t nbytes) = 0;
  // Whether the process of that rank is still there.
  virtual bool is_alive(int peer) = 0;
};

}  // namespace fsdptrain::comm
