#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/nccl/communicator.h"
#include "runtime/base/stream.h"
#include "runtime/tensor/storage.h"

namespace fsdptrain::comm::nccl {

struct MemoryOptions {
  Device device;
  std::size_t nbytes = 0;
  // All ranks of the communicators ask for it at once, and NCCL knows the same place on each.
  bool is_symmetric = false;
};

// Memory of NCCL's own, which these communicators move without copying it first. `users` are the
// streams that may use it: the host waits for them before it is freed. It may outlive the
// communicators.
std::shared_ptr<Storage> allocate_registered(
    const std::vector<std::shared_ptr<Communicator>>& communicators, std::vector<Stream> users,
    const MemoryOptions& options);

}  // namespace fsdptrain::comm::nccl
