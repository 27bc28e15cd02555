#pragma once

#include "shard/sharded_model.h"

namespace fsdptrain::shard {

// While it lives, forwards without gradients leave what they gathered gathered, in memory of its
// own: for many of them in a row with the same parameters, as when tokens are generated. A forward
// after an update gathers again. What was gathered before is given back first, and at its end all
// of the model is.
//
// All ranks begin and end it at the same place, outside of forwards and backwards; a begin
// elsewhere is an AutogradError. Training is none of its business: a forward with gradients, and a
// backward, are an AutogradError while it lives. Scopes of one model nest; the outermost counts.
// The model outlives it.
class GatheredScope {
 public:
  explicit GatheredScope(ShardedModel& model);
  GatheredScope(const GatheredScope&) = delete;
  GatheredScope& operator=(const GatheredScope&) = delete;
  // If another rank has failed, the next operation says so.
  ~GatheredScope();

 private:
  ModelContext& context_;
};

}  // namespace fsdptrain::shard
