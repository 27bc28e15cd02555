#pragma once

#include <optional>
#include <vector>

namespace fsdptrain::shard {

class ParamGroup;

// When the parameters and gradients of a group come and go; from the next forward or backward on.
struct GroupBehavior {
  bool reshard_after_forward = true;
  // Not where the backward begins with this group.
  bool keep_for_backward = false;
  bool reshard_after_backward = true;
  // Else gradients stay whole, and are added up, until a backward with it.
  bool requires_gradient_sync = true;
  // Whether the backward reads parameters at all.
  bool unshard_in_backward = true;
};

// What is gathered once a group is there, in place of what the order of forwards says.
struct ExplicitPrefetch {
  std::optional<std::vector<ParamGroup*>> forward = {};
  std::optional<std::vector<ParamGroup*>> backward = {};
};

}  // namespace fsdptrain::shard
