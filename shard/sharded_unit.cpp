#include "shard/sharded_unit.h"

#include <algorithm>
#include <utility>

#include "runtime/autograd/recompute.h"
#include "runtime/ops/cast.h"
#include "shard/sharded_model.h"

namespace fsdptrain::shard {
namespace {

void cast_floating(nn::Module::Tensors& tensors, std::optional<DType> dtype) {
  for (Tensor& tensor : tensors) {
    if (dtype && tensor.defined() && is_floating(tensor.dtype())) {
      tensor = ops::cast(tensor, *dtype);
    }
  }
}

std::set<const Tensor*> tensors_of(const std::vector<nn::Module*>& modules) {
  std::set<const Tensor*> tensors;
  for (const nn::Module* const module : modules) {
    for (const nn::Parameter& parameter : module->parameters()) {
      tensors.insert(parameter.tensor);
    }
  }
  return tensors;
}

std::vector<ParamGroup*> groups_of(const std::vector<ShardedUnit*>& units) {
  std::vector<ParamGroup*> groups;
  for (ShardedUnit* const unit : units) {
    groups.push_back(&unit->group());
  }
  return groups;
}

}  // namespace

ShardedUnit::Hooks::Hooks(ShardedUnit& of) : unit(of) {
  for (nn::Module* const module : unit.modules_) {
    unit.add_hooks(*module);
  }
}

ShardedUnit::Hooks::~Hooks() {
  for (nn::Module* const module : unit.modules_) {
    module->remove_hooks(&unit);
  }
}

ShardedUnit::ShardedUnit(ShardedModel& model, std::string name, ParamGroup::Members members,
                         SlotPool& pool, ModelContext& context, const ParamGroup::Options& group,
                         const Options& options)
    : model_(model),
      name_(std::move(name)),
      options_(options),
      modules_(members.modules),
      tensors_(tensors_of(modules_)),
      hooks_(*this),
      group_(std::move(members), model.ranks(), pool, context, group) {
  group_.behavior().reshard_after_forward = options.reshard_after_forward.value_or(true);
}

ShardedUnit::~ShardedUnit() = default;

void ShardedUnit::add_hooks(nn::Module& module) {
  module.add_hooks({.pre_forward = [this](nn::Module::Tensors& inputs) { pre_forward(inputs); },
                    .post_forward = [this](nn::Module::Tensors& outputs) { post_forward(outputs); },
                    .forward_failed = [this] { forward_failed(); },
                    .owner = this});
}

void ShardedUnit::pre_forward(nn::Module::Tensors& inputs) {
  // Where it throws nothing has been entered.
  if (options_.policy.cast_forward_inputs) {
    cast_floating(inputs, options_.policy.param_dtype);
  }
  if (!autograd::replaying()) {
    model_.enter_forward(*this);
  }
}

void ShardedUnit::post_forward(nn::Module::Tensors& outputs) {
  try {
    cast_floating(outputs, options_.policy.output_dtype);
  } catch (...) {
    forward_failed();
    throw;
  }
  if (!autograd::replaying()) {
    model_.leave_forward(*this);
  }
}

void ShardedUnit::forward_failed() {
  if (!autograd::replaying()) {
    model_.forward_failed(*this);
  }
}

bool ShardedUnit::contains(const ShardedUnit& other) const {
  return std::ranges::includes(tensors_, other.tensors_);
}

UnshardHandle ShardedUnit::unshard(bool async) {
  group_.issue_unshard();
  UnshardHandle handle(group_);
  if (!async) {
    handle.wait();
  }
  return handle;
}

template <class Set>
void ShardedUnit::for_each(Recurse recurse, const Set& set) {
  set(*this);
  for (const auto& unit : model_.units()) {
    if (recurse == Recurse::Yes && unit.get() != this && contains(*unit)) {
      set(*unit);
    }
  }
}

void ShardedUnit::set_reshard_after_forward(bool reshard, Recurse recurse) {
  for_each(recurse, [reshard](ShardedUnit& unit) {
    unit.options_.reshard_after_forward = reshard;
    unit.group_.behavior().reshard_after_forward = reshard;
    unit.group_.behavior().keep_for_backward = false;
  });
}

void ShardedUnit::set_reshard_after_backward(bool reshard, Recurse recurse) {
  for_each(recurse, [reshard](ShardedUnit& unit) {
    unit.group_.behavior().reshard_after_backward = reshard;
  });
}

void ShardedUnit::set_requires_gradient_sync(bool sync, Recurse recurse) {
  for_each(recurse,
           [sync](ShardedUnit& unit) { unit.group_.behavior().requires_gradient_sync = sync; });
}

void ShardedUnit::set_unshard_in_backward(bool unshard) {
  group_.behavior().unshard_in_backward = unshard;
}

void ShardedUnit::set_gradient_divide_factor(std::optional<double> factor) {
  group_.set_gradient_divide_factor(factor);
}

void ShardedUnit::set_modules_to_forward_prefetch(const std::vector<ShardedUnit*>& units) {
  group_.prefetch().forward = groups_of(units);
}

void ShardedUnit::set_modules_to_backward_prefetch(const std::vector<ShardedUnit*>& units) {
  group_.prefetch().backward = groups_of(units);
}

void ShardedUnit::become_part(bool is_root) {
  if (!options_.reshard_after_forward) {
    group_.behavior().reshard_after_forward = !is_root;
    group_.behavior().keep_for_backward = !is_root;
  }
}

}  // namespace fsdptrain::shard
