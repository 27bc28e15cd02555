#include "comm/meta/traffic.h"

#include <tuple>

#include "comm/collective/transfer_plan.h"

namespace fsdptrain::comm {
namespace {

std::int64_t nbytes_of(const std::vector<Range>& ranges, DType dtype) {
  std::int64_t numel = 0;
  for (const Range& range : ranges) {
    numel += range.numel;
  }
  return numel * static_cast<std::int64_t>(size_of(dtype));
}

Traffic traffic_of(const Call& call) {
  const Operation& operation = call.operation;
  const Tensor& tensor = operation.input.defined() ? operation.input : operation.output;
  Traffic traffic{.calls = 1};
  if (!tensor.defined()) {
    return traffic;
  }
  // There may be one for each of very many ranks.
  if (operation.op == Op::Send || operation.op == Op::Recv) {
    const std::int64_t nbytes = tensor.numel() * static_cast<std::int64_t>(size_of(tensor.dtype()));
    (operation.op == Op::Send ? traffic.bytes_sent : traffic.bytes_received) = nbytes;
    return traffic;
  }
  for (const Phase& phase : plan_transfer(operation, call.members->member())) {
    traffic.bytes_sent += nbytes_of(phase.exports, tensor.dtype());
    traffic.bytes_received += nbytes_of(phase.imports, tensor.dtype());
  }
  return traffic;
}

}  // namespace

bool operator<(const TrafficUse& a, const TrafficUse& b) {
  const auto key = [](const TrafficUse& use) {
    return std::tie(use.op, use.ranks, use.root, use.group, use.direction);
  };
  return key(a) < key(b);
}

Traffic& Traffic::operator+=(const Traffic& other) {
  calls += other.calls;
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
  return *this;
}

Traffic TrafficCounters::of(Op op) const {
  Traffic sum;
  for (const auto& [use, traffic] : by_use) {
    if (use.op == op) {
      sum += traffic;
    }
  }
  return sum;
}

Traffic TrafficCounters::total() const {
  Traffic sum;
  for (const auto& [use, traffic] : by_use) {
    sum += traffic;
  }
  return sum;
}

void TrafficCounters::add(const Call& call) {
  if (call.operation.op == Op::CreateGroup) {
    return;
  }
  const Tag& tag = call.operation.tag;
  by_use[{.op = call.operation.op,
          .ranks = std::string(call.frame.group_name.view()),
          .root = tag.root,
          .group = tag.group,
          .direction = tag.direction}] += traffic_of(call);
}

}  // namespace fsdptrain::comm
