#pragma once

#include <memory>

#include "comm/world.h"
#include "shard/sharded_model.h"

namespace fsdptrain::testing {

// The two axes of data parallelism on the ranks of a world: either has all of them.
struct DataParallelAxes {
  DataParallelAxes(comm::World& world, bool of_replicas)
      : alone(world.new_group({world.rank()}, "shard")),
        shards(of_replicas ? *alone : world.group()),
        replicas(of_replicas ? &world.group() : nullptr) {}

  std::unique_ptr<comm::ProcessGroup> alone;
  comm::ProcessGroup& shards;
  comm::ProcessGroup* replicas;
};

}  // namespace fsdptrain::testing
