#include "runtime/autograd/engine.h"

#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/region.h"
#include "runtime/autograd/value_watch.h"
#include "runtime/base/error.h"

namespace fsdptrain::autograd {

// One backward pass: the gradients on their way and what is still to come.
class Pass {
 public:
  explicit Pass(AutogradState& state) : state_(state) { state_.pass = this; }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  ~Pass() {
    empty_replayed_regions(state_);
    state_.pass = nullptr;
  }

  BackwardStats run(const Tensor& root, const BackwardOptions& options);
  void queue(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }

 private:
  // A tensor that has yet to receive gradients.
  struct Pending {
    std::int64_t edges = 0;
    Tensor grad;
    // The pass may write into `grad`: it is the pass's own sum and not a tensor of an op.
    bool owned = false;
  };
  struct LaterFirst {
    bool operator()(const Meta* a, const Meta* b) const {
      return a->producer->sequence < b->producer->sequence;
    }
  };
  struct InvocationHash {
    std::size_t operator()(const Invocation& invocation) const {
      return std::hash<const void*>()(invocation.owner.get()) ^
             (invocation.id * 0x9E3779B97F4A7C15u);
    }
  };

  void count_edges(Meta* root);
  void run_node(Meta& meta, bool retain_graph);
  void deliver(const Edge& edge, Tensor gradient, bool in_slot);
  void add_to_slot(const Meta& meta, const Tensor& gradient);
  void add_to_pending(const Meta& meta, Pending& pending, Tensor gradient);
  void edge_arrived(Meta& meta);
  void finish_leaf(Meta& leaf, Pending& pending);
  void finish_edge_of_invocation(const Edge& edge);

  AutogradState& state_;
  BackwardStats stats_;
  std::unordered_map<Meta*, Pending> pending_;
  std::unordered_map<Invocation, std::int64_t, InvocationHash> open_edges_;
  std::priority_queue<Meta*, std::vector<Meta*>, LaterFirst> ready_;
  std::vector<std::function<void()>> callbacks_;
};

namespace {

// Whether edges to `meta` end there: leaves and views of slotted parameters.
bool is_terminal(const Meta& meta) {
  return meta.producer == nullptr;
}

// A hook may add others to the same tensor, or take some away: that counts from the next pass on.
void run_hooks(const std::vector<std::function<void()>>& hooks) {
  for (const auto& hook : std::vector(hooks)) {
    hook();
  }
}

// The gradient itself if nobody else sees its bytes, else a dense copy: ops return one tensor for
// two inputs, or a view of a large one.
Tensor as_own(Tensor gradient) {
  const bool is_whole = gradient.is_contiguous() &&
                        gradient.storage()->nbytes() ==
                            static_cast<std::size_t>(gradient.numel()) * size_of(gradient.dtype());
  if (is_whole && gradient.storage().use_count() == 1) {
    return gradient;
  }
  Tensor copy = Tensor::empty(gradient.shape(), gradient.dtype(), gradient.device(),
                              MemoryCategory::Gradient);
  kernels::copy(copy.launch(), copy.view(), gradient.view());
  return copy;
}

}  // namespace

void Pass::count_edges(Meta* root) {
  std::vector<Meta*> stack{root};
  pending_[root].edges = 1;
  while (!stack.empty()) {
    const Meta* const meta = stack.back();
    stack.pop_back();
    if (is_terminal(*meta)) {
      for (const auto& leaf : meta->leaves) {
        // Each view of a parameter is one source of its gradient, finished when the view is.
        ++pending_[leaf.get()].edges;
      }
      continue;
    }
    for (const Edge& edge : meta->producer->edges) {
      if (!edge.to) {
        continue;
      }
      if (edge.invocation.owner) {
        edge.invocation.owner.of(edge.to->name);
        ++open_edges_[edge.invocation];
      }
      if (pending_[edge.to.get()].edges++ == 0) {
        stack.push_back(edge.to.get());
      }
    }
  }
}

BackwardStats Pass::run(const Tensor& root, const BackwardOptions& options) {
  // Holds the graph: a hook may drop the caller's last handle of it.
  const std::shared_ptr<Meta> start = root.autograd_meta();
  count_edges(start.get());
  deliver({start, {}}, options.grad_output, false);
  while (!ready_.empty()) {
    Meta* const meta = ready_.top();
    ready_.pop();
    run_node(*meta, options.retain_graph);
  }
  // A callback may queue another one, which moves the list.
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    const std::function<void()> callback = std::move(callbacks_[i]);
    callback();
  }
  stats_.replays = static_cast<std::int64_t>(state_.replayed.size());
  return stats_;
}

void Pass::run_node(Meta& meta, bool retain_graph) {
  Pending pending = std::move(pending_.extract(&meta).mapped());
  run_hooks(meta.pre_backward_hooks);
  // The pass holds the node: freeing the closure below may drop the last graph tensor.
  const std::shared_ptr<Node> node = meta.producer;
  ++stats_.nodes;
  GradientSink sink(node->edges);
  Gradients gradients(node->edges.size());
  if (pending.grad.defined()) {
    try {
      check<AutogradError>(node->backward != nullptr,
                           "the graph was freed by an earlier backward: pass retain_graph to run "
                           "it again");
      if (state_.watch != nullptr) {
        show_output_gradient(*state_.watch, *node, pending.grad);
      }
      gradients = node->backward(pending.grad, sink);
      check<AutogradError>(gradients.size() == node->edges.size(),
                           "returned {} gradients for {} inputs", gradients.size(),
                           node->edges.size());
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const int input = static_cast<int>(i);
        check<AutogradError>(
            !gradients[i].defined() || !(sink.in_slot(input) || sink.posted(input).defined()),
            "posted a gradient for input {} and returned another: one of them would be lost",
            input);
      }
      if (state_.watch != nullptr) {
        show_input_gradients(*state_.watch, *node, sink, gradients);
      }
    } catch (Error& error) {
      sink.abandon();
      error.add_context(fmt::format("backward of {}", node->op));
      throw;
    } catch (...) {
      sink.abandon();
      throw;
    }
  }
  if (!retain_graph) {
    node->backward = nullptr;
  }
  pending.grad = Tensor();
  for (std::size_t i = 0; i < node->edges.size(); ++i) {
    const int input = static_cast<int>(i);
    const bool posted = sink.posted(input).defined();
    deliver(node->edges[i], posted ? std::move(sink.posted(input)) : std::move(gradients[i]),
            sink.in_slot(input));
  }
}

void Pass::deliver(const Edge& edge, Tensor gradient, bool in_slot) {
  if (!edge.to) {
    return;
  }
  Meta& meta = *edge.to;
  if (gradient.defined() && !in_slot) {
    check<ShapeError>(
        gradient.shape() == meta.shape && gradient.dtype() == meta.dtype,
        "backward: a gradient of shape {} and {} came for a tensor of shape {} and {}",
        gradient.shape(), gradient.dtype(), meta.shape, meta.dtype);
    if (meta.slot) {
      add_to_slot(meta, gradient);
    } else {
      add_to_pending(meta, pending_.at(&meta), std::move(gradient));
    }
  }
  edge_arrived(meta);
  if (edge.invocation.owner) {
    finish_edge_of_invocation(edge);
  }
}

void Pass::add_to_slot(const Meta& meta, const Tensor& gradient) {
  gradient.view();  // A released gradient throws before its slot counts as written.
  stats_.slot_elements_added += gradient.numel();
  write_gradient(meta.slot->open(), gradient);
}

void Pass::add_to_pending(const Meta& meta, Pending& pending, Tensor gradient) {
  if (!pending.grad.defined()) {
    pending.grad = std::move(gradient);
    return;
  }
  if (!pending.owned) {
    // An op may have returned one tensor for two inputs: sum into a new one.
    const Tensor sum = Tensor::empty(gradient.shape(), gradient.dtype(), gradient.device(),
                                     gradient_category(meta));
    kernels::map(sum.launch(), kernels::Add{}, sum.view(), pending.grad.view(), gradient.view());
    pending.grad = sum;
    pending.owned = true;
    return;
  }
  kernels::accumulate(gradient.launch(), pending.grad.view(), gradient.view());
}

void Pass::edge_arrived(Meta& meta) {
  Pending& pending = pending_.at(&meta);
  if (--pending.edges > 0) {
    return;
  }
  if (!is_terminal(meta)) {
    ready_.push(&meta);
    return;
  }
  if (meta.leaves.empty()) {
    finish_leaf(meta, pending);
    return;
  }
  for (const auto& leaf : meta.leaves) {
    edge_arrived(*leaf);
  }
}

void Pass::finish_leaf(Meta& leaf, Pending& pending) {
  run_hooks(leaf.pre_backward_hooks);
  if (pending.grad.defined()) {
    if (leaf.grad.defined()) {
      Pending sum{0, leaf.grad, false};
      add_to_pending(leaf, sum, pending.grad);
      leaf.grad = sum.grad;
    } else {
      leaf.grad = as_own(std::move(pending.grad));
    }
    pending.grad = Tensor();
  }
  if (state_.watch != nullptr) {
    show_leaf_gradient(*state_.watch, leaf);
  }
  run_hooks(leaf.post_accumulate_hooks);
}

void Pass::finish_edge_of_invocation(const Edge& edge) {
  ParameterOwner& owner = edge.invocation.owner.of(edge.to->name);
  if (--open_edges_.at(edge.invocation) == 0) {
    owner.post_backward(edge.invocation.id);
  }
}

BackwardStats backward(const Tensor& root, const BackwardOptions& options) {
  AutogradState& state = current_context().autograd;
  check<AutogradError>(
      state.pass == nullptr,
      "backward: called from within a backward; queue_callback() runs work at the end "
      "of the pass");
  check<AutogradError>(state.region == nullptr,
                       "backward: called from within a recomputed region, whose replay would run "
                       "it again");
  check<AutogradError>(root.defined() && root.requires_grad(),
                       "backward: the root requires no grad: it was computed from nothing that "
                       "does, or under NoGradGuard");
  BackwardOptions filled = options;
  if (!filled.grad_output.defined()) {
    check<ShapeError>(root.numel() == 1,
                      "backward: a root of shape {} needs grad_output: only one element can do "
                      "without",
                      root.shape());
    filled.grad_output = Tensor::full(root.shape(), 1, root.dtype(), root.device());
  }
  check<ShapeError>(root.shape() == filled.grad_output.shape(),
                    "backward: the root has shape {} but grad_output {}", root.shape(),
                    filled.grad_output.shape());
  check<DTypeError>(root.dtype() == filled.grad_output.dtype(),
                    "backward: the root is {} but grad_output {}", root.dtype(),
                    filled.grad_output.dtype());
  check<DeviceError>(root.device() == filled.grad_output.device(),
                     "backward: the root is on {} but grad_output on {}", root.device(),
                     filled.grad_output.device());
  const NoGradGuard no_grad;
  filled.grad_output = filled.grad_output.detach();
  return Pass(state).run(root, filled);
}

void queue_callback(std::function<void()> callback) {
  Pass* const pass = current_context().autograd.pass;
  check<AutogradError>(pass != nullptr, "queue_callback: no backward is under way");
  pass->queue(std::move(callback));
}

}  // namespace fsdptrain::autograd
