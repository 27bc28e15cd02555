#pragma once

#include <map>
#include <string>

#include "comm/flight/groups.h"

namespace fsdptrain::comm {

// Who keeps the others from going on, by the rules of docs/comm.md.
struct Blame {
  // With the reason, the first one found.
  std::map<int, std::string> culprits;
  // Where there are none: a rank has not arrived, but waits elsewhere; ranks disagree, and no side
  // has a majority.
  bool any_late = false;
  bool is_undecided = false;
};

Blame find_culprits(const FlightGroups& all);

// "waiting in all_gather seq 41 of group 'fsdp'", "waiting nowhere"
std::string whereabouts(const FlightGroups& all, int rank);

}  // namespace fsdptrain::comm
