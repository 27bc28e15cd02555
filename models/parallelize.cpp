#include "models/parallelize.h"

namespace fsdptrain::models {

ShardedDecoder parallelize(Decoder& model, shard::ShardedModel& sharded,
                           const shard::ShardedUnit::Options& options) {
  ShardedDecoder units;
  if (nn::Module* const embedding = model.untied_embedding()) {
    units.embedding = &sharded.fully_shard(*embedding, options);
    units.embedding->set_unshard_in_backward(false);
  }
  for (nn::Module* const block : model.blocks()) {
    units.blocks.push_back(&sharded.fully_shard(*block, options));
  }
  units.root = &sharded.fully_shard(model, options);
  return units;
}

}  // namespace fsdptrain::models
