#pragma once

#include <memory>

#include "comm/world.h"
#include "shard/gathered_scope.h"

namespace fsdptrain::tools {

// For many forwards with the same parameters: a scope in which they stay gathered. Null where each
// of them is to gather: on a GPU, and where some rank's host does not have twice the memory that it
// takes on all ranks, which a warning says. The same on all ranks. Collective.
std::unique_ptr<shard::GatheredScope> keep_gathered(shard::ShardedModel& model, comm::World& world);

}  // namespace fsdptrain::tools
