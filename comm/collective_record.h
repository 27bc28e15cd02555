#pragma once

#include "comm/exchange.h"
#include "comm/flight_record.h"
#include "comm/hang_report.h"

// What the flight ring holds of an operation of ProcessGroup.
namespace fsdptrain::comm {

FlightRecord record_of(const Exchange& exchange);

// The names of the numbers in those records.
FlightNames collective_names();

}  // namespace fsdptrain::comm
