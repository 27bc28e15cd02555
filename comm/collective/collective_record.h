#pragma once

#include "comm/collective/exchange.h"
#include "comm/flight/hang_report.h"
#include "comm/flight/record.h"

// What the flight ring holds of an operation of ProcessGroup.
namespace fsdptrain::comm {

FlightRecord record_of(const Exchange& exchange);

// The names of the numbers in those records.
FlightNames collective_names();

}  // namespace fsdptrain::comm
