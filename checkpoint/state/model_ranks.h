#pragma once

#include <algorithm>

#include "comm/world.h"
#include "runtime/base/error.h"
#include "shard/sharded_model.h"

namespace fsdptrain::checkpoint {

// Which of the ranks that share a model out is rank 0 of the world; 0 where each rank has all of
// it. ConfigError unless they are all ranks of the world, or one.
inline int root_of(shard::ShardedModel& model, const comm::World& world) {
  const auto& ranks = model.ranks().ranks();
  check<ConfigError>(model.ranks().size() == 1 || model.ranks().size() == world.size(),
                     "state: the model must be sharded over all {} ranks of the world, or "
                     "replicated on each, got one sharded over {}",
                     world.size(), model.ranks().size());
  const auto found = std::ranges::find(ranks, 0);
  return found == ranks.end() ? 0 : static_cast<int>(found - ranks.begin());
}

}  // namespace fsdptrain::checkpoint
