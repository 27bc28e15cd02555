#include "comm/nccl/in_flight.h"

#include <algorithm>
#include <utility>

#include "comm/collective/collective_record.h"
#include "comm/collective/whereabouts.h"
#include "comm/error.h"

namespace fsdptrain::comm::nccl {
namespace {

// How long the device may need to notice what the host knows to have ended.
constexpr Nanoseconds kLongestEcho = std::chrono::seconds(2);

}  // namespace

bool Batch::has_passed() const {
  return std::ranges::all_of(ended, [](const Event& event) { return event.has_passed(); });
}

InFlight::InFlight(Device device, Channel& channel, const Groups& groups, FlightRing& ring,
                   OrderLog& order)
    : device_(device),
      channel_(channel),
      groups_(groups),
      ring_(ring),
      order_(order),
      wait_(channel.link()),
      pair_sequences_(static_cast<std::size_t>(channel.link().size())) {}

std::vector<std::uint64_t> InFlight::begin_records(std::span<const Call> calls,
                                                   Nanoseconds deadline) {
  std::vector<std::uint64_t> records;
  for (const Call& call : calls) {
    Meeting meeting;
    if (call.operation.op == Op::Send || call.operation.op == Op::Recv) {
      meeting.peer = call.members->ranks[static_cast<std::size_t>(call.operation.root)];
      meeting.sequence = pair_sequences_[static_cast<std::size_t>(meeting.peer)]++;
    }
    order_.add(call);
    records.push_back(ring_.begin(record_of(call, meeting, deadline)));
    ring_.started(records.back());
  }
  return records;
}

void InFlight::note(std::span<const std::uint64_t> records,
                    void (FlightRing::*event)(std::uint64_t)) const {
  for (const std::uint64_t record : records) {
    (ring_.*event)(record);
  }
}

std::shared_ptr<Batch> InFlight::begin(std::vector<Call> calls, Nanoseconds timeout) {
  auto batch = std::make_shared<Batch>();
  batch->frame = calls.front().frame;
  batch->members = calls.front().members;
  batch->calls = std::move(calls);
  batch->timeout = timeout;
  batch->begun = link().clock().now();
  // It has no deadline that others could hold this rank to: it may have ended long ago, and the
  // host, which notices at its next call, computes.
  batch->records = begin_records(batch->calls, Nanoseconds::max());
  show(Progress::Posted, batch->frame);
  batches_.push_back(batch);
  return batch;
}

void InFlight::on_host(std::span<const Call> calls, Nanoseconds timeout,
                       const std::function<void()>& run) {
  const std::vector<std::uint64_t> records = begin_records(calls, timeout);
  try {
    run();
  } catch (...) {
    note(records, &FlightRing::failed);
    throw;
  }
  note(records, &FlightRing::completed);
}

void InFlight::complete_first() {
  const std::shared_ptr<Batch> done = batches_.front();
  batches_.pop_front();
  note(done->records, &FlightRing::completed);
  if (batches_.empty()) {
    show(Progress::Idle, done->frame);
  } else {
    show(Progress::Posted, batches_.back()->frame);
  }
}

void InFlight::note_passed() {
  while (!batches_.empty() && batches_.front()->has_passed()) {
    complete_first();
  }
  if (!batches_.empty() &&
      link().clock().now() - batches_.front()->begun > batches_.front()->timeout) {
    fail_timeout(*batches_.front());
  }
}

void InFlight::finish() {
  while (!batches_.empty()) {
    show(Progress::Waiting, batches_.front()->frame);
    finish_first();
    complete_first();
  }
}

void InFlight::finish_first() {
  const Batch& batch = *batches_.front();
  const auto has_passed = [&] {
    groups_.check();
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
    fsdptrain::fail<PeerError>("rank {} {} before the end of {}, in which rank {} waits for it",
                               gone, link().presence(gone) == Presence::Left ? "left" : "died",
                               to_string(batch.frame), channel_.rank());
  }
}

int InFlight::departed_member(const Batch& batch) {
  for (const int member : batch.members->ranks) {
    if (member != channel_.rank() && link().presence(member) != Presence::Here) {
      return member;
    }
  }
  return -1;
}

void InFlight::fail_timeout(const Batch& batch) {
  fsdptrain::fail<TimeoutError>("rank {}: {} did not end on {} in {}\n{}", channel_.rank(),
                                to_string(batch.frame), device_, to_string(batch.timeout),
                                describe_whereabouts(link(), link().clock().now()));
}

void InFlight::fail() noexcept {
  for (const std::shared_ptr<Batch>& batch : batches_) {
    note(batch->records, &FlightRing::failed);
  }
}

const Batch* InFlight::first_open() const {
  const auto open = std::ranges::find_if(
      batches_, [](const std::shared_ptr<Batch>& batch) { return !batch->is_waited_for; });
  return open == batches_.end() ? nullptr : open->get();
}

void InFlight::show(Progress progress, const Frame& frame) {
  link().set_position({progress, frame, -1, link().clock().now().count()});
}

}  // namespace fsdptrain::comm::nccl
