#include "comm/nccl/carrier.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <fmt/format.h>
#include <ranges>
#include <utility>

#include <nccl.h>

#include "comm/collective/collective_record.h"
#include "comm/collective/whereabouts.h"
#include "comm/error.h"
#include "comm/nccl/check.h"
#include "comm/nccl/launch.h"
#include "comm/nccl/memory.h"
#include "runtime/base/log.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm::nccl {
namespace {

constexpr std::size_t kMaxLanes = 2;
// How long the device may need to notice what the host knows to have ended.
constexpr Nanoseconds kLongestEcho = std::chrono::seconds(2);

// What needs no wait.
class Done final : public Pending {
 public:
  void wait() override {}
  void drop() noexcept override {}
};

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

// Of one rank, which gives it to the other members by the channel.
ncclUniqueId shared_id(const Call& group, Channel& channel, Nanoseconds timeout) {
  ncclUniqueId id{};
  const Tensor bytes =
      Tensor::empty({sizeof id}, DType::UInt8, Device::cpu(), MemoryCategory::Communication);
  if (group.members->rank == 0) {
    check_result("ncclGetUniqueId", ncclGetUniqueId(&id));
    std::ranges::copy(std::as_bytes(std::span(id.internal)), bytes.mutable_bytes().begin());
  }
  std::vector<Call> calls{group};
  calls.front().operation = broadcast(bytes, 0);
  channel.issue(std::move(calls), timeout).wait();
  std::memcpy(&id, bytes.bytes().data(), sizeof id);
  return id;
}

}  // namespace

// Operations that were issued together.
struct NcclCarrier::Batch final : public Pending {
  Batch(NcclCarrier& owner, std::vector<Call> of, Nanoseconds limit)
      : carrier(owner),
        frame(of.front().frame),
        members(of.front().members),
        calls(std::move(of)),
        timeout(limit) {}

  void wait() override { carrier.wait(*this); }
  void drop() noexcept override { carrier.drop(*this); }
  bool has_passed() const {
    return std::ranges::all_of(ended, [](const Event& event) { return event.has_passed(); });
  }

  NcclCarrier& carrier;
  // Of the first of them, for people.
  Frame frame;
  std::shared_ptr<const Members> members;
  // They keep the tensors, until the wait.
  std::vector<Call> calls;
  Nanoseconds timeout;
  Nanoseconds begun{};
  // Of each of them in the flight ring.
  std::vector<std::uint64_t> records;
  // On each stream that has some of them.
  std::vector<Event> ended;
  bool is_waited_for = false;
};

NcclCarrier::NcclCarrier(Options options)
    : options_(std::move(options)),
      device_(current_context().device(options_.device)),
      wait_(options_.channel->link()),
      pair_sequences_(static_cast<std::size_t>(options_.channel->link().size())) {
  if (options_.streams == Streams::Shared) {
    streams_.push_back(device_.make_stream("comm"));
  } else {
    streams_.push_back(device_.make_stream("gather"));
    streams_.push_back(device_.make_stream("reduce"));
  }
  const StreamGuard guard(streams_.back());
  scratch_ = Tensor::empty({1}, DType::Float32, options_.device, MemoryCategory::Communication);
  static constexpr float kZero = 0;
  device_.api()->copy(scratch_.view().data, &kZero, sizeof kZero, streams_.back().handle());
}

NcclCarrier::~NcclCarrier() {
  if (failure_) {
    // Told already, but where an exception dropped a Work and was caught.
    report();
  } else if (num_open_ > 0) {
    const auto open = std::ranges::find_if(
        in_flight_, [](const std::shared_ptr<Batch>& batch) { return !batch->is_waited_for; });
    options_.tell_all(open == in_flight_.end() ? "it left with operations not waited for"
                                               : fmt::format("it left with {} not waited for",
                                                             to_string((*open)->frame)));
  }
  // While the tensors of open operations are there.
  groups_.clear();
  if (!failure_ && num_open_ == 0) {
    wait_for_streams();
  }
}

void NcclCarrier::wait_for_streams() const noexcept {
  try {
    for (const Stream& stream : streams_) {
      stream.synchronize();
    }
  } catch (const Error& error) {
    log_warning("NCCL: at the end of the world: {}", error.what());
  }
}

std::size_t NcclCarrier::lane_of(Op op) const {
  return reduces(op) ? streams_.size() - 1 : 0;
}

void NcclCarrier::check_usable() {
  if (failure_) {
    report();
    std::rethrow_exception(failure_);
  }
  try {
    options_.channel->check_usable();
    check_communicators();
    note_passed();
  } catch (const MisuseError&) {
    // Another thread, which may touch nothing here.
    throw;
  } catch (...) {
    fail_all();
  }
}

void NcclCarrier::check_communicators() {
  for (const auto& [hash, communicators] : groups_) {
    for (const std::shared_ptr<Communicator>& communicator : communicators) {
      communicator->check();
    }
  }
}

void NcclCarrier::create_group(const Call& call, Nanoseconds timeout) {
  const std::uint64_t record = begin_record(call, timeout);
  try {
    options_.ring->started(record);
    // All members agree on name and ranks, and hear of each other's failures, before NCCL waits.
    options_.channel->issue({call}, timeout).wait();
    device_.api()->make_current();
    const std::string name(call.frame.group_name.view());
    const bool is_shared = streams_.size() == 1;
    const ncclUniqueId id = shared_id(call, *options_.channel, timeout);
    Communicators& communicators = groups_[call.frame.group_hash];
    communicators.push_back(std::make_shared<Communicator>(
        *call.members, id, wait_,
        Communicator::Options{.name = is_shared ? name : name + "/gather", .timeout = timeout}));
    if (!is_shared) {
      communicators.push_back(std::make_shared<Communicator>(
          *communicators.front(),
          Communicator::Options{.name = name + "/reduce", .timeout = timeout}));
    }
    options_.ring->completed(record);
  } catch (...) {
    options_.ring->failed(record);
    fail_all();
  }
}

std::uint64_t NcclCarrier::begin_record(const Call& call, Nanoseconds timeout) {
  Meeting meeting;
  if (call.operation.op == Op::Send || call.operation.op == Op::Recv) {
    meeting.peer = call.members->ranks[static_cast<std::size_t>(call.operation.root)];
    meeting.sequence = pair_sequences_[static_cast<std::size_t>(meeting.peer)]++;
  }
  options_.order->add(call);
  return options_.ring->begin(record_of(call, meeting, timeout));
}

Work NcclCarrier::issue(std::vector<Call> calls, Nanoseconds timeout) {
  if (calls.front().operation.op == Op::CreateGroup) {
    create_group(calls.front(), timeout);
    return Work(std::make_shared<Done>());
  }
  for (const Call& call : calls) {
    check_dtypes(call.operation);
  }
  const auto batch = std::make_shared<Batch>(*this, std::move(calls), timeout);
  try {
    if (options_.delay) {
      options_.delay();
    }
    begin(*batch);
    in_flight_.push_back(batch);
    launch(*batch);
  } catch (...) {
    fail_all();
  }
  ++num_open_;
  return Work(batch);
}

void NcclCarrier::begin(Batch& batch) {
  batch.begun = options_.channel->link().clock().now();
  for (const Call& call : batch.calls) {
    batch.records.push_back(begin_record(call, batch.timeout));
    options_.ring->started(batch.records.back());
  }
  show(Progress::Posted, batch.frame);
}

void NcclCarrier::launch(Batch& batch) {
  device_.api()->make_current();
  std::bitset<kMaxLanes> lanes;
  for (const Call& call : batch.calls) {
    lanes.set(lane_of(call.operation.op));
  }
  for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
    if (lanes.test(lane)) {
      streams_[lane].wait(device_.current_stream());
    }
  }
  // They keep what NCCL needs until it has settled.
  std::vector<std::pair<std::shared_ptr<Communicator>, Launcher>> launchers;
  {
    GroupCalls group;
    for (const Call& call : batch.calls) {
      const std::size_t lane = lane_of(call.operation.op);
      const Communicators& communicators = groups_.at(call.frame.group_hash);
      const auto& communicator = communicators[std::min(lane, communicators.size() - 1)];
      for (const Tensor* tensor : {&call.operation.input, &call.operation.output}) {
        if (tensor->defined()) {
          tensor->storage()->note_use(streams_[lane]);
        }
      }
      launchers.emplace_back(communicator,
                             Launcher(*communicator, streams_[lane], scratch_.view().data));
      launchers.back().second.launch(call);
    }
    group.end();
  }
  for (const auto& [communicator, launcher] : launchers) {
    communicator->settle("ncclGroupEnd");
  }
  for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
    if (lanes.test(lane)) {
      batch.ended.emplace_back(device_.api()).record(streams_[lane]);
    }
  }
}

void NcclCarrier::wait(Batch& batch) {
  check_usable();
  try {
    for (const Event& event : batch.ended) {
      device_.current_stream().wait(event);
    }
  } catch (...) {
    fail_all();
  }
  batch.is_waited_for = true;
  --num_open_;
  batch.calls.clear();
}

void NcclCarrier::drop(Batch& batch) noexcept {
  if (batch.is_waited_for || failure_) {
    return;
  }
  failure_ = std::make_exception_ptr(
      MisuseError(fmt::format("rank {}: the Work of {} was dropped without a wait; nothing orders "
                              "what uses its tensors behind it",
                              rank(), to_string(batch.frame))));
  // Where an exception drops it, that is what the others should hear.
  if (std::uncaught_exceptions() == 0) {
    report();
  }
  abort_all();
}

void NcclCarrier::complete_first() {
  for (const std::uint64_t record : in_flight_.front()->records) {
    options_.ring->completed(record);
  }
  const std::shared_ptr<Batch> done = in_flight_.front();
  in_flight_.pop_front();
  if (in_flight_.empty()) {
    show(Progress::Idle, done->frame);
  } else {
    show(Progress::Posted, in_flight_.back()->frame);
  }
}

void NcclCarrier::note_passed() {
  while (!in_flight_.empty() && in_flight_.front()->has_passed()) {
    complete_first();
  }
  if (!in_flight_.empty() && options_.channel->link().clock().now() - in_flight_.front()->begun >
                                 in_flight_.front()->timeout) {
    fail_timeout(*in_flight_.front());
  }
}

void NcclCarrier::finish_first() {
  const Batch& batch = *in_flight_.front();
  const auto has_passed = [&] {
    check_communicators();
    return batch.has_passed();
  };
  int gone = -1;
  const bool has_ended = wait_.until(
      [&] {
        gone = departed_member(batch);
        return has_passed() || gone >= 0;
      },
      batch.timeout);
  if (!has_ended) {
    fail_timeout(batch);
  }
  // Who left has done his part, or never will; the device may be a little behind.
  const Nanoseconds rest = std::min(batch.timeout, kLongestEcho);
  if (gone >= 0 && !wait_.until(has_passed, rest)) {
    fail<PeerError>("rank {} {} before the end of {}, in which rank {} waits for it", gone,
                    options_.channel->link().presence(gone) == Presence::Left ? "left" : "died",
                    to_string(batch.frame), rank());
  }
}

int NcclCarrier::departed_member(const Batch& batch) {
  for (const int member : batch.members->ranks) {
    if (member != rank() && options_.channel->link().presence(member) != Presence::Here) {
      return member;
    }
  }
  return -1;
}

void NcclCarrier::finish() {
  check_usable();
  try {
    while (!in_flight_.empty()) {
      show(Progress::Waiting, in_flight_.front()->frame);
      finish_first();
      complete_first();
    }
  } catch (...) {
    fail_all();
  }
}

void NcclCarrier::meet(Call call, Nanoseconds timeout) {
  const std::uint64_t record = begin_record(call, timeout);
  try {
    options_.ring->started(record);
    options_.channel->meet(std::move(call), timeout);
    options_.ring->completed(record);
  } catch (...) {
    options_.ring->failed(record);
    fail_all();
  }
}

std::shared_ptr<Storage> NcclCarrier::allocate(std::uint64_t group_hash, std::size_t nbytes,
                                               bool is_symmetric) {
  check_usable();
  try {
    device_.api()->make_current();
    std::vector<Stream> users = streams_;
    users.push_back(device_.compute_stream());
    users.push_back(device_.current_stream());
    return allocate_registered(
        groups_.at(group_hash), std::move(users),
        {.device = options_.device, .nbytes = nbytes, .is_symmetric = is_symmetric});
  } catch (...) {
    fail_all();
  }
}

void NcclCarrier::fail_timeout(const Batch& batch) {
  Link& link = options_.channel->link();
  fail<TimeoutError>("rank {}: {} did not end on {} in {}\n{}", rank(), to_string(batch.frame),
                     options_.device, to_string(batch.timeout),
                     describe_whereabouts(link, link.clock().now()));
}

void NcclCarrier::fail_all() {
  failure_ = std::current_exception();
  report();
  abort_all();
  for (const std::shared_ptr<Batch>& batch : in_flight_) {
    for (const std::uint64_t record : batch->records) {
      options_.ring->failed(record);
    }
  }
  throw;
}

// At once: an abort waits for the device, and so for the kernels of the other communicators.
void NcclCarrier::abort_all() noexcept {
  static_cast<void>(ncclGroupStart());
  for (const auto& [hash, communicators] : groups_) {
    for (const std::shared_ptr<Communicator>& communicator : communicators) {
      communicator->abort();
    }
  }
  static_cast<void>(ncclGroupEnd());
}

void NcclCarrier::report() const noexcept {
  options_.tell_all(text_of(failure_));
}

void NcclCarrier::show(Progress progress, const Frame& frame) {
  Link& link = options_.channel->link();
  link.set_position({progress, frame, -1, link.clock().now().count()});
}

}  // namespace fsdptrain::comm::nccl
