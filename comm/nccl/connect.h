#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "comm/carrier.h"
#include "comm/collective/channel.h"
#include "comm/flight/ring.h"
#include "comm/order_log.h"

// What carries out the operations of a rank on a CUDA device: NCCL. Linked into a program by its
// set; without CUDA every function here raises DeviceError but versions().
namespace fsdptrain::comm::nccl {

// Which communicators and streams a rank has for a group.
enum class Streams {
  // Reductions have theirs, and all other operations, so that a gather and a reduction run at the
  // same time. NCCL starts kernels of several communicators in the order of their calls on every
  // rank only where NCCL_LAUNCH_ORDER_IMPLICIT=1 is in the environment (prepare_environment()).
  Separate,
  // One for all: nothing of NCCL runs beside something of NCCL.
  Shared,
};

struct Options {
  // Of this rank alone, in the rank context that is bound to the calling thread.
  Device device;
  Streams streams = Streams::Separate;
  // How ranks agree on groups and meet on the host, and hear of failures; it carries nothing else.
  Channel* channel = nullptr;
  // Outlive the carrier, and are written by the issuing thread.
  FlightRing* ring = nullptr;
  OrderLog* order = nullptr;
  // As Channel::Options has them.
  std::function<void(std::string_view text)> tell_all = {};
  std::function<void()> delay = {};
};

// Ends, when it is destroyed, with its communicators: NCCL waits for the other ranks, for 5 s at
// most. DeviceError as make_cuda_api().
std::unique_ptr<Carrier> make_carrier(Options options);

// Sets what NCCL reads from the environment and the user has not set. Before the process has a
// second thread.
void prepare_environment();

struct Versions {
  std::string built;
  std::string running;
};
// Of NCCL: what this program was compiled against and what it has loaded; "not built" twice where
// there is none.
Versions versions();

}  // namespace fsdptrain::comm::nccl
