#include "runtime/autograd/value_watch.h"

#include <utility>

#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/recompute.h"

namespace fsdptrain::autograd {
namespace {

std::string_view leaf_name(const Tensor& tensor) {
  const auto& meta = tensor.autograd_meta();
  return meta ? std::string_view(meta->name) : std::string_view();
}

}  // namespace

WatchGuard::WatchGuard(std::function<void(const WatchedValue&)> see)
    : state_(current_context().autograd), previous_(state_.watch), see_(std::move(see)) {
  state_.watch = this;
}

WatchGuard::~WatchGuard() {
  state_.watch = previous_;
}

void WatchGuard::show(const WatchedValue& value) const {
  if (value.values.defined() && is_floating(value.values.dtype())) {
    see_(value);
  }
}

std::string ModuleScope::path() const {
  std::string path(name_);
  for (const ModuleScope* scope = outer_; scope != nullptr; scope = scope->outer_) {
    if (path.empty()) {
      path = scope->name_;
    } else if (!scope->name_.empty()) {
      path.insert(0, 1, '.').insert(0, scope->name_);
    }
  }
  return path;
}

std::string watched_module_path() {
  const AutogradState& state = current_context().autograd;
  return state.watch == nullptr || state.module == nullptr ? "" : state.module->path();
}

void show_op(std::string_view op, const Tensor& output, const std::vector<Tensor>& inputs) {
  const WatchGuard* const watch = current_context().autograd.watch;
  if (watch == nullptr || !grad_enabled()) {
    return;
  }
  const std::string module = watched_module_path();
  const Direction direction = replaying() ? Direction::Replay : Direction::Forward;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_leaf()) {
      watch->show({.role = ValueRole::Leaf,
                   .direction = direction,
                   .op = op,
                   .module = module,
                   .input = static_cast<int>(i),
                   .parameter = leaf_name(inputs[i]),
                   .values = inputs[i]});
    }
  }
  watch->show({.role = ValueRole::Output,
               .direction = direction,
               .op = op,
               .module = module,
               .parameter = {},
               .values = output});
}

void show_gradient_ahead(std::string_view op, int input, const Tensor& of, const Tensor& gradient) {
  if (const WatchGuard* const watch = current_context().autograd.watch) {
    const std::string module = watched_module_path();
    watch->show({.role = ValueRole::InputGradient,
                 .direction = Direction::Backward,
                 .op = op,
                 .module = module,
                 .input = input,
                 .parameter = leaf_name(of),
                 .values = gradient});
  }
}

void show_output_gradient(const WatchGuard& watch, const Node& node, const Tensor& gradient) {
  watch.show({.role = ValueRole::OutputGradient,
              .direction = Direction::Backward,
              .op = node.op,
              .module = node.module,
              .parameter = {},
              .values = gradient});
}

void show_input_gradients(const WatchGuard& watch, const Node& node, GradientSink& sink,
                          const std::vector<Tensor>& gradients) {
  for (std::size_t i = 0; i < node.edges.size(); ++i) {
    const int input = static_cast<int>(i);
    const Meta* const to = node.edges[i].to.get();
    if (to == nullptr) {
      continue;
    }
    watch.show({.role = ValueRole::InputGradient,
                .direction = Direction::Backward,
                .op = node.op,
                .module = node.module,
                .input = input,
                .parameter = to->name,
                .values = sink.in_slot(input)            ? to->slot->destination
                          : sink.posted(input).defined() ? sink.posted(input)
                                                         : gradients[i]});
  }
}

void show_leaf_gradient(const WatchGuard& watch, const Meta& leaf) {
  watch.show({.role = ValueRole::LeafGradient,
              .direction = Direction::Backward,
              .op = {},
              .module = {},
              .parameter = leaf.name,
              .values = gradient_of(leaf)});
}

}  // namespace fsdptrain::autograd
