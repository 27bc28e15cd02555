#pragma once

#include "comm/carrier.h"
#include "comm/flight/record.h"
#include "comm/link/link.h"

// What the flight ring holds of an operation of ProcessGroup.
namespace fsdptrain::comm {

// `meeting` is that with the peer of a send or a receive; of no matter for others. `timeout` is how
// long the rank waits for the others.
FlightRecord record_of(const Call& call, const Meeting& meeting, Nanoseconds timeout);

}  // namespace fsdptrain::comm
