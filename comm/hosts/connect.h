#pragma once

#include <memory>
#include <vector>

#include "comm/gloo/connect.h"
#include "comm/link/links.h"
#include "comm/shm/segment.h"

namespace fsdptrain::comm {

// Joins a world of several hosts as `rank`, once. `hosts` has the host of every rank, by any
// number; `segment` is the memory of the ranks of this one, in the order of the world. `spins`
// where each has a core of its own. Errors are those of connect_shm() and connect_gloo();
// ConfigError where hosts and segment do not fit.
Links connect_hosts(const std::shared_ptr<const Segment>& segment, const Network& network,
                    const std::vector<int>& hosts, int rank, bool spins);

}  // namespace fsdptrain::comm
