#pragma once

#include <memory>

#include "comm/link/links.h"
#include "comm/shm/segment.h"

namespace fsdptrain::comm {

// Joins the ranks of this host as `rank`, once. `spins` where each has a core of its own.
Links connect_shm(const std::shared_ptr<const Segment>& segment, int rank, bool spins);

}  // namespace fsdptrain::comm
