#include "tools/train/rank_mesh.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace fsdptrain::tools {

RankMesh::RankMesh(const MeshConfig& config, comm::ProcessGroup& all, const NewGroup& new_group)
    : shard_(&all) {
  const std::int64_t size = all.size();
  check<ConfigError>(size % config.replicate == 0,
                     "mesh.replicate = {}: must divide the number of ranks, which is {}: start a "
                     "multiple of {} ranks, or set mesh.replicate = 1",
                     config.replicate, size, config.replicate);
  const std::int64_t shard = size / config.replicate;
  check<ConfigError>(config.replicate == 1 || std::max(shard, config.shard) <= 1,
                     "mesh.replicate = {} and mesh.shard = {}: models that are both replicated and "
                     "shared out cannot be trained yet: leave one of them at 1",
                     config.replicate, std::max(shard, config.shard));
  check<ConfigError>(config.shard == 0 || config.shard == shard,
                     "mesh.shard = {}: with mesh.replicate = {} this makes {} ranks, and there are "
                     "{}: leave mesh.shard out, or start {} ranks",
                     config.shard, config.replicate, config.replicate * config.shard, size,
                     config.replicate * config.shard);
  if (config.replicate > 1) {
    alone_ = new_group({all.rank()}, "shard");
    shard_ = alone_.get();
    replicas_ = &all;
  }
}

}  // namespace fsdptrain::tools
