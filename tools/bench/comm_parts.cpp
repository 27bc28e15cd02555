#include "tools/bench/comm_parts.h"

#include <chrono>

#include "comm/flight/reader.h"
#include "runtime/base/error.h"

namespace fsdptrain::tools {
namespace {

double seconds_of(comm::Nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

CommPart comm_part_of(comm::Op op, std::uint32_t tag_group, comm::Direction direction,
                      std::uint32_t loss_group) {
  if (op == comm::Op::AllGather) {
    return direction == comm::Direction::Backward ? CommPart::GatherBackward
                                                  : CommPart::GatherForward;
  }
  if (op == comm::Op::ReduceScatter) {
    return CommPart::Reduce;
  }
  return tag_group == loss_group ? CommPart::Loss : CommPart::Norm;
}

CommNumbers bytes_of_parts(const comm::TrafficCounters& traffic, std::uint32_t loss_group) {
  CommNumbers bytes{};
  for (const auto& [use, moved] : traffic.by_use) {
    const CommPart part = comm_part_of(use.op, use.group, use.direction, loss_group);
    bytes[static_cast<std::size_t>(part)] += static_cast<double>(moved.bytes_received);
  }
  return bytes;
}

CommClock::CommClock(const comm::World& world, std::uint32_t loss_group)
    : world_(world), loss_group_(loss_group) {
  num_read_ = world_.flight_ring().num_written();
  waited_before_ = waited();
}

CommSeconds CommClock::read() {
  const comm::FlightRing& ring = world_.flight_ring();
  const std::uint64_t num_new = ring.num_written() - num_read_;
  const comm::FlightMemory& memory = ring.memory();
  check(num_new <= memory.capacity(),
        "bench step: {} operations between ranks in one step, and only {} are kept: start the "
        "ranks with fsdptrain launch",
        num_new, memory.capacity());
  CommSeconds seconds;
  const auto snapshot = comm::read_newest_records(memory.descriptor(), "the flight ring",
                                                  static_cast<std::uint32_t>(num_new));
  for (const comm::FlightRecord& record : snapshot.records) {
    // The control group tells ranks when to start.
    if (record.number < num_read_ || record.group_name_text() != "world" ||
        record.started.count() == 0) {
      continue;
    }
    const CommPart part =
        comm_part_of(static_cast<comm::Op>(record.op), record.tag.group,
                     static_cast<comm::Direction>(record.tag.direction), loss_group_);
    seconds.of[static_cast<std::size_t>(part)] += seconds_of(record.completed - record.started);
  }
  num_read_ = ring.num_written();
  const double waited_now = waited();
  seconds.waited = waited_now - waited_before_;
  waited_before_ = waited_now;
  return seconds;
}

double CommClock::waited() const {
  double sum = 0;
  for (const comm::Nanoseconds wait : world_.waits()) {
    sum += seconds_of(wait);
  }
  return sum;
}

}  // namespace fsdptrain::tools
