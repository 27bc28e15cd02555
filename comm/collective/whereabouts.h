#pragma once

#include <string>

#include "comm/link/link.h"

namespace fsdptrain::comm {

// One line per rank of the world: what it does or did last, and since when.
std::string describe_whereabouts(Link& link, Nanoseconds now);

}  // namespace fsdptrain::comm
