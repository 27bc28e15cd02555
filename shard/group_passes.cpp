#include <utility>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/meta.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "shard/param_group.h"

// What a group does around the forwards and backwards of its modules.
namespace fsdptrain::shard {

void ParamGroup::add_hooks(nn::Module& module) {
  if (parameters_.empty()) {
    return;
  }
  module.add_hooks(
      {.pre_forward = [this](nn::Module::Tensors& inputs) { pre_forward(inputs); },
       .post_forward = [this,
                        &module](nn::Module::Tensors& outputs) { post_forward(module, outputs); },
       .forward_failed = [this] { forward_failed(); },
       .owner = this});
}

void ParamGroup::pre_forward(nn::Module::Tensors& inputs) {
  if (autograd::replaying()) {
    // The region may be larger than this module, whose own backward is still to come.
    context_.begin_backward();
    unshard();
    return;
  }
  check<AutogradError>(!context_.in_backward(),
                       "param group: a backward has not ended: if it failed, call "
                       "reset_iter_state() on all ranks");
  kept_ = false;
  unshard();
  if (!run_is_open_) {
    context_.enter_forward(*this);
  }
  begin_run();
  if (has_frozen() && autograd::grad_enabled()) {
    watch_inputs(inputs, current_invocation().id);
  }
}

void ParamGroup::begin_run() {
  const bool is_list = modules_.size() > 1;
  if (!run_is_open_) {
    begin_invocation();
    run_is_open_ = is_list;
  }
}

void ParamGroup::post_forward(const nn::Module& module, const nn::Module::Tensors& outputs) {
  if (autograd::replaying()) {
    return;
  }
  if (!graph_) {
    graph_ = std::make_shared<const char>();
  }
  const auto inputs = inputs_.find(current_invocation().id);
  const auto watched = inputs == inputs_.end() ? nullptr : inputs->second;
  for (const Tensor& output : outputs) {
    // Nothing of the module is behind a parameter that it hands out.
    if (output.defined() && !output.is_leaf()) {
      output.autograd_meta()->pre_backward_hooks.emplace_back(
          [owner = reference(), invocation = current_invocation().id, name = name(), graph = graph_,
           watched] { static_cast<ParamGroup&>(owner.of(name)).pre_backward(invocation); });
    }
  }
  have_run_.insert(&module);
  if (have_run_.size() == modules_.size()) {
    end_run();
  }
}

void ParamGroup::end_run() {
  context_.leave_forward(*this, current_invocation().id, graph_);
  end_invocation();
  run_is_open_ = false;
  have_run_.clear();
  graph_.reset();
  // Those that no graph keeps.
  std::erase_if(inputs_, [](const auto& of) { return of.second.use_count() == 1; });
  const bool grad = autograd::grad_enabled();
  kept_ = grad && behavior_.keep_for_backward && context_.is_last_of_forward(*this);
  const bool stays = grad ? kept_ || !behavior_.reshard_after_forward : context_.keeps_gathered();
  if (!stays) {
    reshard();
  }
}

void ParamGroup::end_partial_forward() {
  if (run_is_open_) {
    end_run();
  }
}

void ParamGroup::forward_failed() {
  if (autograd::replaying()) {
    return;
  }
  if (!run_is_open_) {
    end_invocation();
  }
  abandon_forward();
}

void ParamGroup::abandon_forward() {
  if (std::exchange(run_is_open_, false)) {
    end_invocation();
  }
  have_run_.clear();
  graph_.reset();
  kept_ = false;
  reshard();
}

void ParamGroup::give_back_kept() {
  if (std::exchange(kept_, false)) {
    reshard();
  }
}

void ParamGroup::watch_inputs(const nn::Module::Tensors& inputs, std::uint64_t invocation) {
  const auto watched = std::make_shared<WatchedInputs>();
  inputs_[invocation] = watched;
  if (surrounds_others()) {
    // Its parameters may be read behind the backward of the others: until the end of the backward.
    watched->count = 1;
    return;
  }
  for (const Tensor& input : inputs) {
    if (!input.defined() || !input.requires_grad()) {
      continue;
    }
    ++watched->count;
    // A leaf keeps its hooks, and this would be one more in every step: parameters stay until the
    // end of the backward.
    if (!input.is_leaf()) {
      auto& hooks = input.autograd_meta()->pre_backward_hooks;
      // Before what gathers the parameters of the module that the input comes from.
      hooks.insert(hooks.begin(), [owner = reference(), invocation, name = name(), watched] {
        static_cast<ParamGroup&>(owner.of(name)).input_is_reached(invocation);
      });
    }
  }
}

bool ParamGroup::surrounds_others() const {
  std::size_t count = 0;
  for (const nn::Module* const module : modules_) {
    count += module->parameters().size();
  }
  return modules_.size() > 1 || count > parameters_.size();
}

void ParamGroup::input_is_reached(std::uint64_t invocation) {
  const auto found = open_backwards_.find(invocation);
  if (found != open_backwards_.end() && found->second.inputs_left > 0) {
    --found->second.inputs_left;
    leave_backward(invocation);
  }
}

void ParamGroup::pre_backward(std::uint64_t invocation) {
  context_.begin_backward();
  // Nothing to reduce where nothing is trained.
  OpenBackward open{.is_reduced = chunks_.empty(), .inputs_left = 0};
  if (const auto found = inputs_.find(invocation); found != inputs_.end()) {
    open.inputs_left = found->second->count;
  }
  if (!open_backwards_.emplace(invocation, open).second) {
    return;
  }
  if (behavior_.unshard_in_backward) {
    unshard();
  }
  context_.enter_backward(*this, invocation);
}

void ParamGroup::leave_backward(std::uint64_t invocation) {
  if (const auto found = open_backwards_.find(invocation); found != open_backwards_.end()) {
    if (!found->second.is_reduced || found->second.inputs_left > 0) {
      return;
    }
    open_backwards_.erase(found);
  }
  kept_ = false;
  if (open_backwards_.empty() && behavior_.reshard_after_backward) {
    reshard();
  }
}

void ParamGroup::finish_backward() {
  if (unsynced_ && behavior_.requires_gradient_sync) {
    reduce_all(0);
  }
  num_reductions_ = 0;
  open_backwards_.clear();
  kept_ = false;
  if (behavior_.reshard_after_backward) {
    reshard();
  } else {
    drop_ahead();
  }
}

}  // namespace fsdptrain::shard
