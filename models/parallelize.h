#pragma once

#include <vector>

#include "models/common/decoder.h"
#include "shard/sharded_model.h"

namespace fsdptrain::models {

// The units that a decoder is sharded into: each block; the token embedding, which is not gathered
// for its backward; and the rest, with the head, the norm before it and an embedding that the head
// shares, which stays gathered from its forward to its backward.
struct ShardedDecoder {
  std::vector<shard::ShardedUnit*> blocks;
  // None where it is tied.
  shard::ShardedUnit* embedding = nullptr;
  shard::ShardedUnit* root = nullptr;
};

// All of `model`, of which nothing has been sharded, as units of `sharded`.
ShardedDecoder parallelize(Decoder& model, shard::ShardedModel& sharded,
                           const shard::ShardedUnit::Options& options = {});

}  // namespace fsdptrain::models
