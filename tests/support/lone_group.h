#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/nn/parameter_rules.h"
#include "shard/param_group.h"

// Groups without a ShardedModel around them.
namespace fsdptrain::testing {

// What of `module` has no owner yet, by names below `path`.
inline shard::ParamGroup::Members members_of(nn::Module& module, const std::string& path = {},
                                             const std::vector<nn::ParameterRule>& rules = {}) {
  shard::ParamGroup::Members members;
  members.modules = {&module};
  for (nn::Parameter& parameter : module.parameters()) {
    if (nn::is_unplaced(*parameter.tensor)) {
      parameter.name = path + parameter.name;
      members.parameters.push_back(std::move(parameter));
    }
  }
  members.parameters = nn::with_rules(std::move(members.parameters), rules);
  members.adjacent = module.adjacent_parameters();
  for (std::vector<std::string>& set : members.adjacent) {
    for (std::string& name : set) {
      name = path + name;
    }
  }
  return members;
}

// What groups need that nothing is gathered ahead for, and whose steps a test ends by
// pool.end_step().
struct GroupContext {
  explicit GroupContext(comm::ProcessGroup& ranks) : pool(ranks), unused(ranks) {}

  shard::SlotPool pool;
  // The context would end steps with each backward.
  shard::SlotPool unused;
  shard::ModelContext context{unused, {.prefetch = 0}};
};

// One that has to do with no other.
struct LoneGroup : GroupContext {
  LoneGroup(nn::Module& module, comm::ProcessGroup& ranks,
            const shard::ParamGroup::Options& options,
            const std::vector<nn::ParameterRule>& rules = {})
      : GroupContext(ranks), group(members_of(module, {}, rules), ranks, pool, context, options) {}

  void reset() {
    group.reset_iter_state();
    context.reset();
  }

  shard::ParamGroup group;
};

}  // namespace fsdptrain::testing
