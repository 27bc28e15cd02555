#include "runtime/nn/module.h"

#include <algorithm>
#include <array>
#include <ranges>

#include "runtime/autograd/recompute.h"
#include "runtime/autograd/value_watch.h"
#include "runtime/base/error.h"

namespace fsdptrain::nn {
namespace {

// See autograd::keep_or_run().
constexpr std::array<std::string_view, 1> kKeptBySelective = {"attention"};

}  // namespace

Tensor Module::operator()(const Tensor& x) {
  return through_hooks({x}, [this](const Tensors& inputs) { return Tensors{forward(inputs[0])}; })
      .front();
}

Tensor Module::forward(const Tensor& x) {
  fail("module {}: computes nothing from one tensor of shape {}", name_, x.shape());
}

Module::Tensors Module::through_hooks(Tensors inputs,
                                      const std::function<Tensors(const Tensors&)>& body) {
  if (recompute_ == Recompute::None) {
    return run_hooks(std::move(inputs), body);
  }
  autograd::RecomputeOptions options;
  options.name = name_.empty() ? "the root module" : name_;
  if (recompute_ == Recompute::Selective) {
    options.keep = {kKeptBySelective.begin(), kKeptBySelective.end()};
    // One policy for all modules, with attention and without.
    options.keep_optional = true;
  }
  const auto run_as_now = [this, life = std::weak_ptr(life_), modes = training_modes(),
                           hooks_version = hooks_version_, body](const Tensors& region_inputs) {
    check<AutogradError>(!life.expired(), "the module is gone: it must live until the backward");
    check<AutogradError>(modes == training_modes(),
                         "the training mode was changed between forward and backward");
    check<AutogradError>(hooks_version == hooks_version_,
                         "hooks were added or removed between forward and backward");
    return run_hooks(region_inputs, body);
  };
  return autograd::recomputed(inputs, run_as_now, std::move(options));
}

Module::Tensors Module::run_hooks(Tensors inputs,
                                  const std::function<Tensors(const Tensors&)>& body) {
  const autograd::ModuleScope inside(name_);
  // Hooks whose pre_forward has run and whose post_forward has not begun.
  std::size_t entered = 0;
  const auto leave = [&] {
    for (const Hooks& hooks : hooks_ | std::views::take(entered) | std::views::reverse) {
      if (hooks.forward_failed) {
        hooks.forward_failed();
      }
    }
  };
  try {
    for (const Hooks& hooks : hooks_) {
      if (hooks.pre_forward) {
        hooks.pre_forward(inputs);
      }
      ++entered;
    }
    Tensors outputs = body(inputs);
    for (const Hooks& hooks : std::views::reverse(hooks_)) {
      --entered;
      if (hooks.post_forward) {
        hooks.post_forward(outputs);
      }
    }
    return outputs;
  } catch (Error& error) {
    leave();
    if (!name_.empty()) {
      error.add_context(name_);
    }
    throw;
  } catch (...) {
    leave();
    throw;
  }
}

void Module::add_hooks(Hooks hooks) {
  hooks_.push_back(std::move(hooks));
  ++hooks_version_;
}

void Module::remove_hooks(const void* owner) {
  ++hooks_version_;
  std::erase_if(hooks_, [owner](const Hooks& hooks) { return hooks.owner == owner; });
}

std::vector<Parameter> Module::parameters() const {
  std::vector<Parameter> all = parameters_;
  for (const auto& [name, child] : children_) {
    for (Parameter parameter : child->parameters()) {
      parameter.name = name + "." + parameter.name;
      all.push_back(std::move(parameter));
    }
  }
  return all;
}

std::vector<std::vector<std::string>> Module::adjacent_parameters() const {
  std::vector<std::vector<std::string>> all = adjacent_;
  for (const auto& [name, child] : children_) {
    for (std::vector<std::string> set : child->adjacent_parameters()) {
      for (std::string& parameter : set) {
        parameter = name + "." + parameter;
      }
      all.push_back(std::move(set));
    }
  }
  return all;
}

void Module::set_training(bool training) {
  training_ = training;
  for (const auto& [name, child] : children_) {
    child->set_training(training);
  }
}

std::vector<bool> Module::training_modes() const {
  std::vector<bool> modes{training_};
  for (const auto& [name, child] : children_) {
    const std::vector<bool> below = child->training_modes();
    modes.insert(modes.end(), below.begin(), below.end());
  }
  return modes;
}

void Module::check_is_new(const std::string& name) const {
  const bool is_new =
      std::ranges::find(parameters_, name, &Parameter::name) == parameters_.end() &&
      !std::ranges::any_of(children_, [&](const auto& child) { return child.first == name; });
  check(is_new, "module: \"{}\" is registered twice: give every parameter and child its own name",
        name);
}

void Module::register_parameter(std::string name, Tensor& tensor, const ParameterSpec& spec) {
  check_is_new(name);
  parameters_.push_back({std::move(name), &tensor, spec});
}

void Module::register_module(std::string name, Module& child) {
  check_is_new(name);
  child.name_ = name;
  children_.emplace_back(std::move(name), &child);
}

void Module::register_adjacent(std::vector<std::string> names) {
  adjacent_.push_back(std::move(names));
}

}  // namespace fsdptrain::nn
