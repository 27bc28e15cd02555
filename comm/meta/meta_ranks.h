#pragma once

#include "comm/meta/phantom_ranks.h"

namespace fsdptrain::comm {

// The same on the meta device, on tensors without bytes: what a rank holds and moves in a job of
// any size is known by running it.
class MetaRanks final : public PhantomRanks {
 public:
  // ConfigError as PhantomRanks.
  MetaRanks(int rank, int size) : PhantomRanks(rank, size, Device::meta()) {}
};

}  // namespace fsdptrain::comm
