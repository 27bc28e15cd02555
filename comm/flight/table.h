#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/flight/reader.h"

// What one rank did last, for people.
namespace fsdptrain::comm {

// Seconds from a time of the rank's clock to `now`, of the system's date. Never negative, whatever
// damaged times say.
double age_of(const FlightHeader& header, Nanoseconds time, Nanoseconds now);

// The last moment that any of the rings tells of, of the system's date; 0 where none does.
Nanoseconds last_moment(std::span<const FlightSnapshot> rings);

// The operation that the rank waits in or gave up in: the first. Null: none.
const FlightRecord* open_operation(const FlightSnapshot& ring);

// Which records say most about where the rank is: some before the open operation, it, and some
// behind, or the last ones where none is open. At most `count`, oldest first.
std::vector<const FlightRecord*> telling_records(const FlightSnapshot& ring, std::size_t count);

// One line: "rank 2 (process 71 on node1) waits in all_reduce seq 41 of ... since 3.2 s, for 600 s
// at most; waited longest for rank 1: 3.2 s"
std::string rank_line(const FlightSnapshot& ring, Nanoseconds now);
// The telling records, a line each.
std::string operations_table(const FlightSnapshot& ring, Nanoseconds now, std::size_t count);

}  // namespace fsdptrain::comm
