#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/nn/parameter.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::nn {

// What a module's forward keeps for the backward.
enum class Recompute {
  // All that its ops save.
  None,
  // Its inputs and the outputs of attention: dear to compute and small. The rest is computed again.
  Selective,
  // Its inputs.
  Full,
};

// A unit of a model: named parameters, named children and what it computes. Callers never reach
// a computation but through the hooks: operator() and every other public method of a subclass
// (logits, loss, ...) run their bodies by through_hooks(). Built on meta (see Parameter).
class Module {
 public:
  using Tensors = std::vector<Tensor>;
  // Hooks may replace arguments and results.
  using PreForwardHook = std::function<void(Tensors& inputs)>;
  using PostForwardHook = std::function<void(Tensors& outputs)>;
  struct Hooks {
    PreForwardHook pre_forward;
    PostForwardHook post_forward;
    // Runs instead of post_forward when the body, or a hook that runs before it, throws.
    std::function<void()> forward_failed = {};
    // Who added them, for remove_hooks().
    const void* owner = nullptr;
  };

  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  // The computation of one tensor from one tensor; Error for modules that have none.
  Tensor operator()(const Tensor& x);

  // Own parameters and those of children, in order of registration, by dotted path.
  std::vector<Parameter> parameters() const;
  // Sets of parameters that their owner must place next to each other, without gaps and in this
  // order, by dotted path.
  std::vector<std::vector<std::string>> adjacent_parameters() const;

  // From the next forward on. Hooks run again with the forward they surround and can ask
  // autograd::replaying(). The module outlives the backward and keeps its training mode until then;
  // AutogradError otherwise.
  void set_recompute(Recompute policy) { recompute_ = policy; }

  // Pre-forward hooks run in order of addition, the others in reverse. Neither is called while the
  // module runs.
  void add_hooks(Hooks hooks);
  void remove_hooks(const void* owner);

  bool training() const { return training_; }
  // Dropout acts in training only. Children follow.
  void set_training(bool training);

 protected:
  // `tensor` and `child` are members of this module, the tensor on meta. Error if another one has
  // the name.
  void register_parameter(std::string name, Tensor& tensor, const ParameterSpec& spec);
  void register_module(std::string name, Module& child);
  void register_adjacent(std::vector<std::string> names);

  // Errors from within keep their type and gain the module's name. `body` may run again after this
  // returned (Recompute): it captures by value.
  Tensors through_hooks(Tensors inputs, const std::function<Tensors(const Tensors&)>& body);

 private:
  virtual Tensor forward(const Tensor& x);
  Tensors run_hooks(Tensors inputs, const std::function<Tensors(const Tensors&)>& body);
  // Of this module and all below it.
  std::vector<bool> training_modes() const;
  void check_is_new(const std::string& name) const;

  // As the parent registered it; empty for a root.
  std::string name_;
  bool training_ = true;
  Recompute recompute_ = Recompute::None;
  // Expires with the module.
  std::shared_ptr<const Module> life_{this, [](const Module*) {}};
  std::vector<Parameter> parameters_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<std::vector<std::string>> adjacent_;
  std::vector<Hooks> hooks_;
  // Counts changes of hooks_.
  std::uint64_t hooks_version_ = 0;
};

}  // namespace fsdptrain::nn
