#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "runtime/base/half.h"
#include "tests/fakecuda/nccl/state.h"

// Collectives, transfers, reductions and memory of NCCL.
namespace fsdptrain::fakecuda {
namespace {

template <class T>
T read_as(const void* scalar) {
  T value{};
  std::memcpy(&value, scalar, sizeof value);
  return value;
}

double factor_of(const void* scalar, ncclDataType_t type) {
  if (type == ncclFloat64) {
    return read_as<double>(scalar);
  }
  if (type == ncclFloat16) {
    return to_float(read_as<float16>(scalar));
  }
  return type == ncclBfloat16 ? to_float(read_as<bfloat16>(scalar)) : read_as<float>(scalar);
}

std::optional<ReduceOp> reduce_op(ncclComm_t comm, ncclRedOp_t op) {
  switch (static_cast<int>(op)) {
    case ncclSum:
      return ReduceOp{"sum"};
    case ncclMin:
      return ReduceOp{"min", {.op = kernels::CombineOp::Min}};
    case ncclMax:
      return ReduceOp{"max", {.op = kernels::CombineOp::Max}};
    case ncclAvg:
      return ReduceOp{.name = "avg", .is_average = true};
    default:
      break;
  }
  const auto found = comm->premuls.find(static_cast<int>(op));
  return found == comm->premuls.end() ? std::nullopt : std::optional(found->second);
}

ncclResult_t take_reduction(Request request, ncclRedOp_t op, const char* call) {
  ncclComm* const comm = find_comm(request.comm, call);
  if (comm == nullptr) {
    return ncclInvalidArgument;
  }
  request.op = reduce_op(comm, op);
  if (!request.op) {
    report_nccl(ReportKind::InvalidUse,
                fmt::format("{} by a reduction that the communicator does not have", call));
    return refuse(comm, ncclInvalidArgument, "no such reduction");
  }
  return take(std::move(request));
}

}  // namespace
}  // namespace fsdptrain::fakecuda

using fsdptrain::fakecuda::find_comm;
using fsdptrain::fakecuda::Kind;
using fsdptrain::fakecuda::nccl_state;
using fsdptrain::fakecuda::take;
using fsdptrain::fakecuda::take_reduction;

extern "C" {

ncclResult_t ncclAllGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return take({comm, stream, Kind::AllGather, send, recv, count, type});
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return take_reduction({comm, stream, Kind::ReduceScatter, send, recv, count, type}, op,
                        "ncclReduceScatter");
}

ncclResult_t ncclAllReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return take_reduction({comm, stream, Kind::AllReduce, send, recv, count, type}, op,
                        "ncclAllReduce");
}

ncclResult_t ncclReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return take_reduction({comm, stream, Kind::Reduce, send, recv, count, type, {}, root}, op,
                        "ncclReduce");
}

ncclResult_t ncclBroadcast(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return take({comm, stream, Kind::Broadcast, send, recv, count, type, {}, root});
}

ncclResult_t ncclAlltoAll(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return take({comm, stream, Kind::AlltoAll, send, recv, count, type});
}

ncclResult_t ncclGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return take({comm, stream, Kind::Gather, send, recv, count, type, {}, root});
}

ncclResult_t ncclScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  return take({comm, stream, Kind::Scatter, send, recv, count, type, {}, root});
}

ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return take({comm, stream, Kind::Send, send, nullptr, count, type, {}, peer});
}

ncclResult_t ncclRecv(void* recv, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return take({comm, stream, Kind::Recv, nullptr, recv, count, type, {}, peer});
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t handle) {
  ncclComm* const comm = find_comm(handle, "ncclRedOpCreatePreMulSum");
  if (comm == nullptr || residence != ncclScalarHostImmediate) {
    return ncclInvalidArgument;
  }
  const int number = comm->next_premul++;
  comm->premuls[number] = {"premul-sum", {.factor = fsdptrain::fakecuda::factor_of(scalar, type)}};
  *op = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  ncclComm* const comm = find_comm(handle, "ncclRedOpDestroy");
  if (comm == nullptr || comm->premuls.erase(static_cast<int>(op)) == 0) {
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, std::size_t nbytes) {
  // More than CUDA's own alignment: windows need it.
  void* block = nullptr;
  *data = nullptr;
  fsdptrain::fakecuda::NcclState& state = nccl_state();
  if (const cudaError_t error = cudaMalloc(&block, nbytes + NCCL_WIN_REQUIRED_ALIGNMENT);
      error != cudaSuccess) {
    // As the real one: CUDA's own last error is gone, and there is a text.
    static_cast<void>(cudaGetLastError());
    const std::lock_guard lock(state.mutex);
    state.last_error = fmt::format("Cuda failure '{}'", cudaGetErrorString(error));
    return ncclUnhandledCudaError;
  }
  std::size_t space = nbytes + NCCL_WIN_REQUIRED_ALIGNMENT;
  *data = block;
  std::align(NCCL_WIN_REQUIRED_ALIGNMENT, nbytes, *data, space);
  const std::lock_guard lock(state.mutex);
  state.blocks[*data] = block;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* data) {
  void* block = nullptr;
  std::string owner;
  {
    fsdptrain::fakecuda::NcclState& state = nccl_state();
    const std::lock_guard lock(state.mutex);
    block = std::exchange(state.blocks[data], nullptr);
    for (const std::unique_ptr<ncclComm>& comm : state.comms) {
      if (!comm->is_gone && (comm->registrations.contains(data) || comm->windows.contains(data))) {
        owner = comm->clique->name;
      }
    }
  }
  if (!owner.empty()) {
    fsdptrain::fakecuda::report_nccl(
        fsdptrain::fakecuda::ReportKind::InvalidUse,
        fmt::format("ncclMemFree of memory that is registered with {}", owner));
  }
  return block != nullptr && cudaFree(block) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* data, std::size_t, void** result) {
  ncclComm* const comm = find_comm(handle, "ncclCommRegister");
  if (comm == nullptr) {
    return ncclInvalidArgument;
  }
  comm->registrations.insert(data);
  *result = data;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* data) {
  ncclComm* const comm = find_comm(handle, "ncclCommDeregister");
  return comm != nullptr && comm->registrations.erase(data) == 1 ? ncclSuccess
                                                                 : ncclInvalidArgument;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void* data, std::size_t,
                                    ncclWindow_t* window, int) {
  ncclComm* const comm = find_comm(handle, "ncclCommWindowRegister");
  if (comm == nullptr ||
      reinterpret_cast<std::uintptr_t>(data) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return ncclInvalidArgument;
  }
  comm->windows.insert(data);
  ++comm->num_window_calls;
  *window = static_cast<ncclWindow_t>(data);
  return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t window) {
  ncclComm* const comm = find_comm(handle, "ncclCommWindowDeregister");
  return comm != nullptr && comm->windows.erase(window) == 1 ? ncclSuccess : ncclInvalidArgument;
}

}  // extern "C"
