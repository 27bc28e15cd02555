#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/rank_context.h"
#include "runtime/tensor/tensor.h"

// A look at every floating value that a step computes, op by op: how one that is not finite is
// located. Without a guard it costs a test of a pointer.
namespace fsdptrain::autograd {

struct Node;
class GradientSink;

// What a value was computed for. A replay is that of a recomputed region, in a backward.
enum class Direction { Forward, Replay, Backward };

// What a value is to the op that it is shown with.
enum class ValueRole {
  // Input `input`, where no op with history made it: a parameter, a constant.
  Leaf,
  Output,
  // The sum of all gradients of the output, from which the op's backward starts.
  OutputGradient,
  // What the backward gave for input `input`: a tensor, or all that the gradient slot holds by now.
  InputGradient,
  // The gradient of a leaf when the pass has added the last one to it. No op is named.
  LeafGradient,
};

struct WatchedValue {
  ValueRole role = ValueRole::Output;
  Direction direction = Direction::Forward;
  std::string_view op;
  // The dotted path of the innermost module whose forward is under way, or was when the op was
  // recorded; empty for the root, and for ops that were recorded without a guard.
  std::string_view module;
  int input = -1;
  // Of the leaf that the value or the gradient belongs to; empty if that is none or has no name.
  std::string_view parameter;
  const Tensor& values;
};

// Shows values to `see` for the lifetime of the guard: those of ops that run with gradients
// enabled, recorded or not, in order of execution; those of replays; and the gradients of backward
// passes. `see` reads them, keeps no reference and runs no op; what it throws is an error of the
// op. A graph is recorded, and its backward run, under one guard, or its ops have no modules.
class WatchGuard {
 public:
  explicit WatchGuard(std::function<void(const WatchedValue&)> see);
  WatchGuard(const WatchGuard&) = delete;
  WatchGuard& operator=(const WatchGuard&) = delete;
  ~WatchGuard();

  void show(const WatchedValue& value) const;

 private:
  AutogradState& state_;
  const WatchGuard* previous_;
  std::function<void(const WatchedValue&)> see_;
};

// A module whose forward runs, for the lifetime of the scope; the name outlives it.
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view name)
      : ModuleScope(name, current_context().autograd.module) {}
  // In `outer` instead of in the module whose forward is under way.
  ModuleScope(std::string_view name, const ModuleScope* outer)
      : state_(current_context().autograd), name_(name), outer_(outer), previous_(state_.module) {
    state_.module = this;
  }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;
  ~ModuleScope() { state_.module = previous_; }

  // Names from the outermost module on, with dots between; those of roots are empty.
  std::string path() const;

 private:
  AutogradState& state_;
  std::string_view name_;
  const ModuleScope* outer_;
  const ModuleScope* previous_;
};

// For whoever remembers where it was made: the path while a watch is bound, else nothing.
std::string watched_module_path();

// For record(): the leaves that an op reads, and its output.
void show_op(std::string_view op, const Tensor& output, const std::vector<Tensor>& inputs);

// For ops that compute the gradient of input `input`, `of`, ahead of their backward.
void show_gradient_ahead(std::string_view op, int input, const Tensor& of, const Tensor& gradient);

// For the engine, around the closure of a node, and at the end of a leaf.
void show_output_gradient(const WatchGuard& watch, const Node& node, const Tensor& gradient);
void show_input_gradients(const WatchGuard& watch, const Node& node, GradientSink& sink,
                          const std::vector<Tensor>& gradients);
void show_leaf_gradient(const WatchGuard& watch, const Meta& leaf);

}  // namespace fsdptrain::autograd
