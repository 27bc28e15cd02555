#include "shard/gathered_scope.h"

#include <exception>

namespace fsdptrain::shard {

GatheredScope::GatheredScope(ShardedModel& model) : context_(model.context()) {
  context_.begin_gathered();
}

GatheredScope::~GatheredScope() {
  try {
    context_.end_gathered();
  } catch (const std::exception&) {
    // Of a gather under way, whose world has failed: every operation from here on says that.
  }
}

}  // namespace fsdptrain::shard
