#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "tools/config/config.h"

namespace fsdptrain::tools {

// The ranks of a world as [mesh] lays them out. The world outlives it.
class RankMesh {
 public:
  // As World::new_group().
  using NewGroup =
      std::function<std::unique_ptr<comm::ProcessGroup>(std::vector<int> ranks, std::string name)>;

  // `all` is the group of all ranks. Collective. ConfigError naming the keys where the mesh is not
  // as large as the world, or is one that models cannot be trained on.
  RankMesh(const MeshConfig& config, comm::ProcessGroup& all, const NewGroup& new_group);

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
