#include <algorithm>
#include <fmt/ranges.h>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "shard/sharded_model.h"

// Which units there may be, and what each is made of.
namespace fsdptrain::shard {
namespace {

bool is_ignored(const std::vector<const Tensor*>& ignored, const Tensor* tensor) {
  return std::ranges::find(ignored, tensor) != ignored.end();
}

}  // namespace

ShardedUnit& ShardedModel::fully_shard(nn::Module& module, const ShardedUnit::Options& options) {
  return fully_shard(std::vector{&module}, options);
}

ShardedUnit& ShardedModel::fully_shard(const std::vector<nn::Module*>& modules,
                                       const ShardedUnit::Options& options) {
  check<ConfigError>(!modules.empty(), "fully_shard: the list of modules is empty");
  const std::string name = name_of(modules);
  check_may_shard(modules, name);
  const auto number = static_cast<std::uint32_t>(units_.size());
  ParamGroup::Members members = members_of(modules);
  std::vector<const Tensor*> taken;
  for (const nn::Parameter& parameter : members.parameters) {
    taken.push_back(parameter.tensor);
  }
  ParamGroup::Options group;
  group.dtype = options_.dtype;
  group.policy = options.policy;
  group.gradient_divide_factor = options.gradient_divide_factor;
  group.replicas = options_.replicas;
  group.accumulation = options_.accumulation;
  group.seed = options_.seed;
  group.tag = {.root = options_.root, .group = number};
  ShardedUnit& unit = *units_.emplace_back(std::make_unique<ShardedUnit>(
      *this, name, std::move(members), pool_, context_, group, options));
  for (const Tensor* const tensor : taken) {
    owners_[tensor] = &unit;
  }
  return unit;
}

std::string ShardedModel::path_of(const nn::Module& module) const {
  if (&module == &model_) {
    return "the root";
  }
  const std::vector<nn::Parameter> own = module.parameters();
  check<ConfigError>(!own.empty(),
                     "fully_shard: a module without parameters is no unit: shard the one that it "
                     "is part of");
  const auto found = std::ranges::find(parameters_, own.front().tensor, &nn::Parameter::tensor);
  check<ConfigError>(found != parameters_.end(),
                     "fully_shard: the module with the parameter {} is no part of the model",
                     own.front().name);
  const std::size_t length = found->name.size() - own.front().name.size();
  return length == 0 ? "the root" : found->name.substr(0, length - 1);
}

std::string ShardedModel::name_of(const std::vector<nn::Module*>& modules) const {
  std::vector<std::string> names;
  for (const nn::Module* const module : modules) {
    names.push_back(path_of(*module));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void ShardedModel::check_may_shard(const std::vector<nn::Module*>& modules,
                                   const std::string& name) const {
  check<AutogradError>(!gave_chunks_,
                       "fully_shard: {} comes after chunks() were asked for: an optimizer that has "
                       "them would not update it. Make the optimizer last",
                       name);
  check<AutogradError>(root_ == nullptr,
                       "fully_shard: {} comes after the first forward: shard the whole model "
                       "before it runs",
                       name);
  for (const nn::Module* const module : modules) {
    const bool again = std::ranges::count(modules, module) > 1 ||
                       std::ranges::any_of(units_, [&](const auto& unit) {
                         return std::ranges::find(unit->modules(), module) != unit->modules().end();
                       });
    check<ConfigError>(!again, "fully_shard: {} is sharded twice", path_of(*module));
    check_nesting(*module, path_of(*module));
  }
}

void ShardedModel::check_nesting(const nn::Module& module, const std::string& name) const {
  std::set<const Tensor*> tensors;
  for (const nn::Parameter& parameter : module.parameters()) {
    tensors.insert(parameter.tensor);
  }
  for (const nn::Parameter& parameter : parameters_) {
    const auto owner = owners_.find(parameter.tensor);
    if (!tensors.contains(parameter.tensor) || owner == owners_.end()) {
      continue;
    }
    const ShardedUnit& other = *owner->second;
    // Of two modules with the same parameters one may have the other in it, unless these are
    // registered twice.
    const bool is_tied =
        other.tensors() == tensors &&
        std::ranges::count(parameters_, parameter.tensor, &nn::Parameter::tensor) > 1;
    const bool is_nested = !is_tied && std::ranges::includes(tensors, other.tensors());
    const bool is_child = !is_tied && std::ranges::includes(other.tensors(), tensors);
    check<ConfigError>(
        is_nested || !is_child,
        "fully_shard: {} comes after {}, which it is part of and which has taken {}: "
        "shard parts before the whole",
        name, other.name(), parameter.name);
    check<ConfigError>(is_nested,
                       "fully_shard: {} shares the parameter {} with {}, which has taken it: shard "
                       "both by one call with a list of modules",
                       name, parameter.name, other.name());
  }
}

ParamGroup::Members ShardedModel::members_of(const std::vector<nn::Module*>& modules) const {
  std::set<const Tensor*> tensors;
  for (const nn::Module* const module : modules) {
    for (const nn::Parameter& parameter : module->parameters()) {
      tensors.insert(parameter.tensor);
    }
  }
  ParamGroup::Members members{.modules = modules, .parameters = {}, .adjacent = {}};
  for (const nn::Parameter& parameter : parameters_) {
    if (tensors.erase(parameter.tensor) > 0 && !owners_.contains(parameter.tensor) &&
        !is_ignored(options_.ignored, parameter.tensor)) {
      members.parameters.push_back(parameter);
    }
  }
  members.adjacent = model_.adjacent_parameters();
  return members;
}

}  // namespace fsdptrain::shard
