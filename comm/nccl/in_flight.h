#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/carrier.h"
#include "comm/collective/channel.h"
#include "comm/flight/ring.h"
#include "comm/nccl/groups.h"
#include "comm/nccl/host_wait.h"
#include "comm/order_log.h"
#include "runtime/base/stream.h"

namespace fsdptrain::comm::nccl {

// Operations that were issued together.
struct Batch {
  bool has_passed() const;

  // Of the first of them, for people.
  Frame frame;
  std::shared_ptr<const Members> members;
  // They keep the tensors, until the wait.
  std::vector<Call> calls;
  Nanoseconds timeout{};
  Nanoseconds begun{};
  // Of each of them in the flight ring.
  std::vector<std::uint64_t> records;
  // On each stream that has some of them; none before they were launched.
  std::vector<Event> ended;
  bool is_waited_for = false;
};

// What a rank has issued and does not know to have ended, oldest first, and what others can see of
// it: the flight ring, the order and this rank's position. The device ends an operation by itself,
// and the host learns of it when it looks.
class InFlight {
 public:
  // All of these outlive it. Errors name the device.
  InFlight(Device device, Channel& channel, const Groups& groups, FlightRing& ring,
           OrderLog& order);

  // Notes operations as issued, in this order; they are launched next.
  std::shared_ptr<Batch> begin(std::vector<Call> calls, Nanoseconds timeout);
  // Notes what is done on the host, while `run` does it.
  void on_host(std::span<const Call> calls, Nanoseconds timeout, const std::function<void()>& run);

  // Notes what has passed since the last look; TimeoutError for what should have.
  void note_passed();
  // Blocks the host until all has ended: TimeoutError, PeerError, and what NCCL says.
  void finish();
  // Nothing of it ends any more.
  void fail() noexcept;
  // The first one that nobody waited for; null if there is none.
  const Batch* first_open() const;

 private:
  // `deadline` is what the flight ring says of them.
  std::vector<std::uint64_t> begin_records(std::span<const Call> calls, Nanoseconds deadline);
  void note(std::span<const std::uint64_t> records, void (FlightRing::*event)(std::uint64_t)) const;
  void complete_first();
  void finish_first();
  // A member of its group that has left or died; -1 for none.
  int departed_member(const Batch& batch);
  [[noreturn]] void fail_timeout(const Batch& batch);
  void show(Progress progress, const Frame& frame);
  Link& link() { return channel_.link(); }

  Device device_;
  Channel& channel_;
  const Groups& groups_;
  FlightRing& ring_;
  OrderLog& order_;
  HostWait wait_;
  // Of operations with each rank of the world.
  std::vector<std::uint64_t> pair_sequences_;
  std::deque<std::shared_ptr<Batch>> batches_;
};

}  // namespace fsdptrain::comm::nccl
