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
    context_.enter_pass();
    unshard();
    return;
  }
  check<AutogradError>(!context_.in_pass(),
                       "param group: a backward has not ended: if it failed, call "
                       "reset_iter_state() on all ranks");
  kept_ = false;
  unshard();
  if (!run_is_open_) {
    context_.enter_forward(*this);
  }
  begin_run();
  if (frozen() && autograd::grad_enabled()) {
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
  for (const Tensor& output : outputs) {
    // Nothing of the module is behind a parameter that it hands out.
    if (output.defined() && !output.is_leaf()) {
      output.autograd_meta()->pre_backward_hooks.emplace_back(
          [owner = reference(), invocation = current_invocation().id, name = name(),
           graph = graph_] { static_cast<ParamGroup&>(owner.of(name)).pre_backward(invocation); });
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
  const bool grad = autograd::grad_enabled();
  kept_ = grad && behavior_.keep_for_backward && context_.is_last_of_forward(*this);
  if (!grad || (behavior_.reshard_after_forward && !kept_)) {
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

void ParamGroup::watch_inputs(nn::Module::Tensors& inputs, std::uint64_t invocation) {
  const auto inputs_left = std::make_shared<InputsLeft>();
  for (const Tensor& input : inputs) {
    // Leaves keep their hooks, and these would be one more in every step.
    if (!input.defined() || input.is_leaf()) {
      continue;
    }
    ++inputs_left->all;
    auto& hooks = input.autograd_meta()->pre_backward_hooks;
    // Before what gathers the parameters of the module that the input comes from.
    hooks.insert(hooks.begin(), [owner = reference(), invocation, name = name(), inputs_left] {
      if (--inputs_left->left == 0) {
        static_cast<ParamGroup&>(owner.of(name)).leave_backward(invocation);
      }
    });
  }
  std::erase_if(inputs_left_, [](const auto& of) { return of.second.expired(); });
  inputs_left_[invocation] = inputs_left;
}

void ParamGroup::pre_backward(std::uint64_t invocation) {
  context_.enter_pass();
  if (!open_backwards_.insert(invocation).second) {
    return;
  }
  if (const auto found = inputs_left_.find(invocation); found != inputs_left_.end()) {
    if (const auto inputs_left = found->second.lock()) {
      inputs_left->left = inputs_left->all;
    }
  }
  if (behavior_.unshard_in_backward) {
    unshard();
  }
  context_.enter_backward(*this, invocation);
}

void ParamGroup::leave_backward(std::uint64_t invocation) {
  open_backwards_.erase(invocation);
  kept_ = false;
  if (open_backwards_.empty() && behavior_.reshard_after_backward) {
    reshard();
  }
}

void ParamGroup::finish_backward() {
  if (unsynced_ && behavior_.requires_gradient_sync) {
    reduce_all(0);
  }
  open_backwards_.clear();
  kept_ = false;
  if (behavior_.reshard_after_backward) {
    reshard();
  } else {
    drop_ahead();
  }
}

}  // namespace fsdptrain::shard
