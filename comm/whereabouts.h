#pragma once

#include <span>
#include <string>

#include "comm/link.h"

// Texts about where ranks are, for errors.
namespace fsdptrain::comm {

// "2.5 s"
std::string seconds_of(Nanoseconds time);

// "rank 3 has", "ranks 1, 3 have"
std::string ranks_of(std::span<const int> ranks);

// One line per rank of the world: what it does or did last, and since when.
std::string describe_whereabouts(Link& link, Nanoseconds now);

}  // namespace fsdptrain::comm
