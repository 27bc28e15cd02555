#pragma once

#include <functional>

#include "comm/clock.h"
#include "comm/link/link.h"

namespace fsdptrain::comm::nccl {

// Lets the host wait for what NCCL or the device do by themselves, by looking again and again.
class HostWait {
 public:
  // `link` hears of the failures of other ranks and has the clock.
  explicit HostWait(Link& link) : link_(link) {}

  // Returns whether `ready()` became true within `timeout`; PeerError as soon as a rank of the
  // world has failed. Ranks under a HostSchedule have all the time that others can make use of.
  bool until(const std::function<bool()>& ready, Nanoseconds timeout) const;

 private:
  bool has_failed() const;

  Link& link_;
};

}  // namespace fsdptrain::comm::nccl
