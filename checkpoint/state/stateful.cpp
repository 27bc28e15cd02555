#include "checkpoint/state/stateful.h"

#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {

void Stateful::merge(std::span<const nlohmann::json> states, int /*rank*/, int num_ranks) {
  fail<ConfigError>(
      "it is of each rank, was saved by {} ranks, and does not say how it becomes that of {}",
      states.size(), num_ranks);
}

}  // namespace fsdptrain::checkpoint
