#pragma once

#include <cstdint>
#include <memory>

#include "comm/world.h"
#include "tools/config.h"

namespace fsdptrain::tools {

// The ranks of a world as [mesh] lays them out: rank r has the place r mod shard in the group that
// shares out a model, and neighbours are in one. The world outlives it.
class RankMesh {
 public:
  // Collective. ConfigError naming the keys where the mesh is not as large as the world, or is one
  // that models cannot be trained on.
  RankMesh(const MeshConfig& config, comm::World& world);

  // Those that a model is shared out over, this one among them.
  comm::ProcessGroup& shard() { return *shard_; }
  // Those that hold the same part as this one; null where there is no other.
  comm::ProcessGroup* replicas() { return replicas_; }

 private:
  // Of this rank alone, where models are not shared out.
  std::unique_ptr<comm::ProcessGroup> alone_;
  comm::ProcessGroup* shard_;
  comm::ProcessGroup* replicas_ = nullptr;
};

}  // namespace fsdptrain::tools
