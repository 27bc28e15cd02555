#include "comm/nccl/lanes.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include <nccl.h>

#include "comm/nccl/check.h"
#include "comm/nccl/launch.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm::nccl {
namespace {

constexpr std::size_t kMaxLanes = 2;

// Between them NCCL only takes note of calls; ended also where one of them fails.
class GroupCalls {
 public:
  GroupCalls() { check_result("ncclGroupStart", ncclGroupStart()); }
  GroupCalls(const GroupCalls&) = delete;
  GroupCalls& operator=(const GroupCalls&) = delete;
  ~GroupCalls() {
    if (!is_ended_) {
      static_cast<void>(ncclGroupEnd());
    }
  }

  void end() {
    is_ended_ = true;
    check_result("ncclGroupEnd", ncclGroupEnd());
  }

 private:
  bool is_ended_ = false;
};

void note_use(const Operation& operation, const Stream& stream) {
  for (const Tensor* tensor : {&operation.input, &operation.output}) {
    if (tensor->defined()) {
      tensor->storage()->note_use(stream);
    }
  }
}

}  // namespace

Lanes::Lanes(DeviceContext& device, Streams streams) : device_(device) {
  if (streams == Streams::Shared) {
    streams_.push_back(device_.make_stream("comm"));
  } else {
    streams_.push_back(device_.make_stream("gather"));
    streams_.push_back(device_.make_stream("reduce"));
  }
  const StreamGuard guard(streams_.back());
  scratch_ =
      Tensor::empty({1}, DType::Float32, device_.api()->device(), MemoryCategory::Communication);
  static constexpr float kZero = 0;
  device_.api()->copy(scratch_.view().data, &kZero, sizeof kZero, streams_.back().handle());
}

std::size_t Lanes::lane_of(Op op) const {
  return reduces(op) ? streams_.size() - 1 : 0;
}

void Lanes::enqueue(std::span<const Call> calls, const Groups& groups) const {
  // They keep what NCCL needs until it has settled.
  std::vector<std::pair<std::shared_ptr<Communicator>, Launcher>> launchers;
  {
    GroupCalls group;
    for (const Call& call : calls) {
      const std::size_t lane = lane_of(call.operation.op);
      const std::shared_ptr<Communicator>& communicator = groups.of(call.frame.group_hash).at(lane);
      note_use(call.operation, streams_[lane]);
      launchers.emplace_back(communicator,
                             Launcher(*communicator, streams_[lane], scratch_.view().data));
      launchers.back().second.launch(call);
    }
    group.end();
  }
  for (const auto& [communicator, launcher] : launchers) {
    communicator->settle("ncclGroupEnd");
  }
}

std::vector<Event> Lanes::launch(std::span<const Call> calls, const Groups& groups) const {
  device_.api()->make_current();
  std::bitset<kMaxLanes> used;
  for (const Call& call : calls) {
    used.set(lane_of(call.operation.op));
  }
  for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
    if (used.test(lane)) {
      streams_[lane].wait(device_.current_stream());
    }
  }
  enqueue(calls, groups);
  std::vector<Event> ended;
  for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
    if (used.test(lane)) {
      ended.emplace_back(device_.api()).record(streams_[lane]);
    }
  }
  return ended;
}

void Lanes::synchronize() const {
  for (const Stream& stream : streams_) {
    stream.synchronize();
  }
}

}  // namespace fsdptrain::comm::nccl
