#pragma once

#include <optional>
#include <string>

#include "comm/flight/reader.h"

namespace fsdptrain::tools {

// A rank gives an operation up by itself when its deadline has passed. What it is in if it has not,
// 5 s later, for people: "has been in all_reduce seq 41 ..."; nothing if all is well. Operations
// without a deadline, as those that a GPU does alone, may take as long as they like. `now` is of
// the ranks' clock.
std::optional<std::string> find_overdue(const comm::FlightSnapshot& ring, comm::Nanoseconds now);

}  // namespace fsdptrain::tools
