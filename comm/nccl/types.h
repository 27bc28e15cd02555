#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nccl.h>

#include "comm/link/frame.h"
#include "runtime/base/dtype.h"

// What NCCL calls our dtypes and reductions.
namespace fsdptrain::comm::nccl {

// So many elements of a type that NCCL has.
struct Elements {
  ncclDataType_t type = ncclUint8;
  std::size_t count = 0;
};

// For operations that only move bytes, of any dtype.
Elements moved(DType dtype, std::int64_t numel);
// For reductions; DTypeError naming the operation for a dtype in which NCCL does not reduce.
ncclDataType_t reduced_type(std::string_view op, DType dtype);

// A reduction of one communicator, for calls within its lifetime.
class ReductionHandle {
 public:
  // NCCL multiplies by a factor that is rounded to `dtype`.
  ReductionHandle(const Reduction& reduction, DType dtype, ncclDataType_t type, ncclComm_t comm);
  ReductionHandle(const ReductionHandle&) = delete;
  ReductionHandle& operator=(const ReductionHandle&) = delete;
  ~ReductionHandle();

  ncclRedOp_t op() const { return op_; }

 private:
  ncclComm_t comm_;
  ncclRedOp_t op_ = ncclSum;
  bool is_made_ = false;
};

}  // namespace fsdptrain::comm::nccl
