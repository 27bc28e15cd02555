#include "comm/collective/collective_record.h"

#include "runtime/base/dtype.h"

namespace fsdptrain::comm {
namespace {

bool reduces(Op op) {
  return op == Op::ReduceScatter || op == Op::AllReduce || op == Op::Reduce;
}

}  // namespace

FlightRecord record_of(const Call& call, const Meeting& meeting, Nanoseconds timeout) {
  const Frame& frame = call.frame;
  const Operation& operation = call.operation;
  FlightRecord record;
  record.op = static_cast<std::uint8_t>(frame.op);
  record.is_point_to_point = frame.op == Op::Send || frame.op == Op::Recv;
  record.counts_vary = frame.op == Op::AllToAll || frame.parts_hash != 0;
  record.deadline = deadline_seconds(timeout);
  record.root = record.is_point_to_point ? meeting.peer : frame.root;
  record.group = frame.group_hash;
  record.group_size = static_cast<std::uint32_t>(call.members->size());
  record.set_group_name(frame.group_name.view());
  record.sequence = record.is_point_to_point ? meeting.sequence : frame.group_sequence;
  record.tag = {frame.tag.root, frame.tag.group, frame.tag.invocation,
                static_cast<std::uint8_t>(frame.tag.direction)};
  if (reduces(frame.op)) {
    record.reduce_op = static_cast<std::uint8_t>(frame.reduce_op);
  }
  // Of a scatter each rank's part: the whole is on the root alone.
  const bool by_output = frame.op == Op::Scatter || !operation.input.defined();
  const Tensor& tensor = by_output ? operation.output : operation.input;
  if (tensor.defined()) {
    record.dtype = static_cast<std::uint8_t>(tensor.dtype());
    record.count = static_cast<std::uint64_t>(tensor.numel());
    record.nbytes = record.count * size_of(tensor.dtype());
  }
  return record;
}

}  // namespace fsdptrain::comm
