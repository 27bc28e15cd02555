#include "comm/nccl/types.h"

#include "comm/nccl/check.h"
#include "runtime/base/error.h"
#include "runtime/base/half.h"

namespace fsdptrain::comm::nccl {
namespace {

// What NCCL reads a factor as.
union Factor {
  float as_float32;
  double as_float64;
  std::uint16_t as_bits;
};

Factor factor_in(DType dtype, double factor) {
  Factor result{};
  const auto narrow = static_cast<float>(factor);
  if (dtype == DType::Float64) {
    result.as_float64 = factor;
  } else if (dtype == DType::BFloat16) {
    result.as_bits = to_bfloat16(narrow).bits;
  } else if (dtype == DType::Float16) {
    result.as_bits = to_float16(narrow).bits;
  } else {
    result.as_float32 = narrow;
  }
  return result;
}

}  // namespace

Elements moved(DType dtype, std::int64_t numel) {
  const auto count = static_cast<std::size_t>(numel);
  switch (dtype) {
    case DType::Float32:
      return {ncclFloat32, count};
    case DType::BFloat16:
      return {ncclBfloat16, count};
    case DType::Float16:
      return {ncclFloat16, count};
    case DType::Float64:
      return {ncclFloat64, count};
    case DType::Int64:
      return {ncclInt64, count};
    case DType::Int32:
      return {ncclInt32, count};
    case DType::UInt16:
      // NCCL has none of 16 bits, but bytes are bytes.
      return {ncclUint8, 2 * count};
    case DType::UInt8:
      return {ncclUint8, count};
  }
  fail<DTypeError>("NCCL: {} is no dtype", static_cast<int>(dtype));
}

ncclDataType_t reduced_type(std::string_view op, DType dtype) {
  check<DTypeError>(
      dtype != DType::UInt16,
      "{}: NCCL does not reduce in {}; reduce in int32, or move the parts and combine "
      "them",
      op, dtype);
  return moved(dtype, 0).type;
}

ReductionHandle::ReductionHandle(const Reduction& reduction, DType dtype, ncclDataType_t type,
                                 ncclComm_t comm)
    : comm_(comm) {
  switch (reduction.op) {
    case ReduceOp::Sum:
      return;
    case ReduceOp::Avg:
      op_ = ncclAvg;
      return;
    case ReduceOp::Min:
      op_ = ncclMin;
      return;
    case ReduceOp::Max:
      op_ = ncclMax;
      return;
    case ReduceOp::PremulSum:
      Factor factor = factor_in(dtype, reduction.factor);
      check_result("ncclRedOpCreatePreMulSum",
                   ncclRedOpCreatePreMulSum(&op_, &factor, type, ncclScalarHostImmediate, comm),
                   comm);
      is_made_ = true;
  }
}

ReductionHandle::~ReductionHandle() {
  if (is_made_) {
    static_cast<void>(ncclRedOpDestroy(op_, comm_));
  }
}

}  // namespace fsdptrain::comm::nccl
