#pragma once

#include <memory>
#include <vector>

#include "comm/carrier.h"
#include "comm/nccl/communicator.h"
#include "comm/nccl/types.h"
#include "runtime/base/stream.h"

namespace fsdptrain::comm::nccl {

// Whether an operation adds up what ranks give, and so belongs to their communicator.
bool reduces(Op op);
// DTypeError for what NCCL has no dtype for.
void check_dtypes(const Operation& operation);

// Launches operations on one stream, between ncclGroupStart() and ncclGroupEnd(). What it keeps
// lives until NCCL has taken them in.
class Launcher {
 public:
  // `scratch` is one float32 on the device that holds zero.
  Launcher(const Communicator& communicator, const Stream& stream, void* scratch);

  void launch(const Call& call);

 private:
  struct Buffers;

  void all_gather(const Call& call, const Buffers& at);
  void reduce_scatter(const Call& call, const Buffers& at);
  void all_to_all(const Call& call, const Buffers& at);
  void reduce(const Call& call, const Buffers& at);
  ncclRedOp_t reduction_of(const Operation& operation);

  ncclComm_t comm_;
  cudaStream_t stream_;
  void* scratch_;
  std::vector<std::unique_ptr<ReductionHandle>> reductions_;
};

}  // namespace fsdptrain::comm::nccl
