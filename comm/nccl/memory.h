#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/nccl/groups.h"
#include "comm/nccl/host_wait.h"
#include "runtime/base/device_context.h"
#include "runtime/tensor/storage.h"

namespace fsdptrain::comm::nccl {

// Memory of NCCL's own, which the communicators of a group move without copying it first. The
// device's allocator counts it (MemoryCategory::Communication), as raw memory too, and follows who
// uses it.
//
// A block that is dropped is freed at once, in the program's own order, so that ranks that ask for
// and drop the same have NCCL's memory alike: the host waits for the streams that used it. It does
// not wait while an exception passes, or after the failure of another rank: what the block is used
// by may never end then, and it is freed behind the end of the communicators. A block that
// outlives them is freed when it is dropped.
class RegisteredMemory : public std::enable_shared_from_this<RegisteredMemory> {
 public:
  RegisteredMemory(DeviceContext& device, HostWait wait);
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory();

  // All members ask for a symmetric block at once, and NCCL knows the same place on each.
  // OutOfMemoryError as Allocator::allocate(), of this rank alone: other members of a symmetric
  // one wait for it.
  std::shared_ptr<Storage> allocate(const Communicators& communicators, std::size_t nbytes,
                                    bool is_symmetric);
  // Frees what was dropped and not freed; the communicators have ended, and so streams can.
  void end() noexcept;

 private:
  class Registration;
  class Source;
  struct Block;

  // Frees it, now or at the end.
  void give_back(Block block) noexcept;
  bool passes(const Block& block) const noexcept;

  DeviceContext& device_;
  HostWait wait_;
  std::vector<Block> dropped_;
};

}  // namespace fsdptrain::comm::nccl
