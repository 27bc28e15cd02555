#include "comm/nccl/launch.h"

#include <algorithm>

#include "comm/nccl/check.h"

namespace fsdptrain::comm::nccl {
namespace {

void run(std::string_view call, ncclResult_t result, ncclComm_t comm) {
  check_result(call, result, comm);
}

std::byte* address_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.view().data) : nullptr;
}

DType dtype_of(const Operation& operation) {
  return operation.input.defined() ? operation.input.dtype() : operation.output.dtype();
}

}  // namespace

// Where the operation's tensors are.
struct Launcher::Buffers {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  DType dtype = DType::UInt8;

  std::byte* at(std::byte* base, std::int64_t element) const {
    return base + static_cast<std::size_t>(element) * size_of(dtype);
  }
};

bool reduces(Op op) {
  return op == Op::ReduceScatter || op == Op::AllReduce || op == Op::Reduce || op == Op::Barrier;
}

void check_dtypes(const Operation& operation) {
  if (reduces(operation.op) && operation.op != Op::Barrier) {
    static_cast<void>(reduced_type(name_of(operation.op), operation.input.dtype()));
  }
}

Launcher::Launcher(const Communicator& communicator, const Stream& stream, void* scratch)
    : comm_(communicator.handle()),
      stream_(static_cast<cudaStream_t>(stream.handle())),
      scratch_(scratch) {}

ncclRedOp_t Launcher::reduction_of(const Operation& operation) {
  const DType dtype = operation.input.dtype();
  reductions_.push_back(std::make_unique<ReductionHandle>(
      operation.reduction, dtype, reduced_type(name_of(operation.op), dtype), comm_));
  return reductions_.back()->op();
}

void Launcher::all_gather(const Call& call, const Buffers& at) {
  const Operation& operation = call.operation;
  if (operation.output_counts.empty()) {
    const auto [type, count] = moved(at.dtype, operation.input.numel());
    run("ncclAllGather", ncclAllGather(at.input, at.output, count, type, comm_, stream_), comm_);
    return;
  }
  std::int64_t begin = 0;
  for (int root = 0; root < call.members->size(); ++root) {
    const std::int64_t numel = operation.output_counts[static_cast<std::size_t>(root)];
    const auto [type, count] = moved(at.dtype, numel);
    if (count > 0) {
      std::byte* const part = at.at(at.output, begin);
      run("ncclBroadcast",
          ncclBroadcast(root == call.members->rank ? at.input : part, part, count, type, root,
                        comm_, stream_),
          comm_);
    }
    begin += numel;
  }
}

void Launcher::reduce_scatter(const Call& call, const Buffers& at) {
  const Operation& operation = call.operation;
  const ncclDataType_t type = reduced_type("reduce_scatter", at.dtype);
  const ncclRedOp_t op = reduction_of(operation);
  if (operation.input_counts.empty()) {
    run("ncclReduceScatter",
        ncclReduceScatter(at.input, at.output, static_cast<std::size_t>(operation.output.numel()),
                          type, op, comm_, stream_),
        comm_);
    return;
  }
  std::int64_t begin = 0;
  for (int root = 0; root < call.members->size(); ++root) {
    const std::int64_t numel = operation.input_counts[static_cast<std::size_t>(root)];
    if (numel > 0) {
      run("ncclReduce",
          ncclReduce(at.at(at.input, begin), root == call.members->rank ? at.output : nullptr,
                     static_cast<std::size_t>(numel), type, op, root, comm_, stream_),
          comm_);
    }
    begin += numel;
  }
}

void Launcher::all_to_all(const Call& call, const Buffers& at) {
  const Operation& operation = call.operation;
  const int size = call.members->size();
  if (operation.input_counts.empty()) {
    const auto [type, count] = moved(at.dtype, operation.input.numel() / size);
    run("ncclAlltoAll", ncclAlltoAll(at.input, at.output, count, type, comm_, stream_), comm_);
    return;
  }
  std::int64_t out_begin = 0;
  std::int64_t in_begin = 0;
  for (int peer = 0; peer < size; ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    const auto [type, out_count] = moved(at.dtype, operation.input_counts[index]);
    if (out_count > 0) {
      run("ncclSend", ncclSend(at.at(at.input, out_begin), out_count, type, peer, comm_, stream_),
          comm_);
    }
    const std::size_t in_count = moved(at.dtype, operation.output_counts[index]).count;
    if (in_count > 0) {
      run("ncclRecv", ncclRecv(at.at(at.output, in_begin), in_count, type, peer, comm_, stream_),
          comm_);
    }
    out_begin += operation.input_counts[index];
    in_begin += operation.output_counts[index];
  }
}

void Launcher::reduce(const Call& call, const Buffers& at) {
  const Operation& operation = call.operation;
  const ncclDataType_t type = reduced_type(name_of(operation.op), at.dtype);
  const ncclRedOp_t op = reduction_of(operation);
  const auto count = static_cast<std::size_t>(operation.input.numel());
  if (operation.op == Op::AllReduce) {
    run("ncclAllReduce", ncclAllReduce(at.input, at.output, count, type, op, comm_, stream_),
        comm_);
    return;
  }
  // Elsewhere the tensor stays as it is.
  std::byte* const output = operation.root == call.members->rank ? at.output : nullptr;
  run("ncclReduce", ncclReduce(at.input, output, count, type, op, operation.root, comm_, stream_),
      comm_);
}

void Launcher::launch(const Call& call) {
  const Operation& operation = call.operation;
  if (operation.op == Op::Barrier) {
    run("ncclAllReduce", ncclAllReduce(scratch_, scratch_, 1, ncclFloat32, ncclSum, comm_, stream_),
        comm_);
    return;
  }
  const Buffers at{address_of(operation.input), address_of(operation.output), dtype_of(operation)};
  const Tensor& part = operation.input.defined() ? operation.input : operation.output;
  if (std::max(operation.input.defined() ? operation.input.numel() : 0,
               operation.output.defined() ? operation.output.numel() : 0) == 0) {
    return;
  }
  const auto [type, count] = moved(at.dtype, part.numel());
  switch (operation.op) {
    case Op::AllGather:
      return all_gather(call, at);
    case Op::ReduceScatter:
      return reduce_scatter(call, at);
    case Op::AllReduce:
    case Op::Reduce:
      return reduce(call, at);
    case Op::AllToAll:
      return all_to_all(call, at);
    case Op::Broadcast:
      return run("ncclBroadcast",
                 ncclBroadcast(at.input, at.output, count, type, operation.root, comm_, stream_),
                 comm_);
    case Op::Gather:
      return run("ncclGather",
                 ncclGather(at.input, at.output, count, type, operation.root, comm_, stream_),
                 comm_);
    case Op::Scatter:
      return run("ncclScatter",
                 ncclScatter(at.input, at.output, moved(at.dtype, operation.output.numel()).count,
                             type, operation.root, comm_, stream_),
                 comm_);
    case Op::Send:
      return run("ncclSend", ncclSend(at.input, count, type, operation.root, comm_, stream_),
                 comm_);
    case Op::Recv:
      return run("ncclRecv", ncclRecv(at.output, count, type, operation.root, comm_, stream_),
                 comm_);
    case Op::Barrier:
    case Op::CreateGroup:
      return;
  }
}

}  // namespace fsdptrain::comm::nccl
