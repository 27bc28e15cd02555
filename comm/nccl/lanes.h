#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/carrier.h"
#include "comm/nccl/connect.h"
#include "comm/nccl/groups.h"
#include "runtime/base/device_context.h"
#include "runtime/base/stream.h"

namespace fsdptrain::comm::nccl {

// The streams of a rank on which NCCL runs, each with a communicator of every group, and the way of
// an operation there.
//
// [Note: streams of an operation] Its stream waits for what the current stream had at the call;
// Work::wait() makes the then current stream wait for it. Tensors are kept by the operation until
// then, and their storages know that its stream uses them: so what is freed after the wait, on any
// stream, is given to nobody who would not wait for the operation (runtime/base/allocator.h).
class Lanes {
 public:
  Lanes(DeviceContext& device, Streams streams);

  std::size_t size() const { return streams_.size(); }
  // Launches the calls together; an event of each stream that has some of them.
  std::vector<Event> launch(std::span<const Call> calls, const Groups& groups) const;
  // Blocks the host until all that was launched is done.
  void synchronize() const;

 private:
  // Which stream an operation runs on.
  std::size_t lane_of(Op op) const;
  void enqueue(std::span<const Call> calls, const Groups& groups) const;

  DeviceContext& device_;
  std::vector<Stream> streams_;
  // One float32 that is zero, for barriers.
  Tensor scratch_;
};

}  // namespace fsdptrain::comm::nccl
