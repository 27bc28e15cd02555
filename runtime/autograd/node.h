#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/autograd/meta.h"
#include "runtime/autograd/saved_tensor.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::autograd {

// gradients[i] belongs to input i; undefined where it was posted or is not wanted.
using Gradients = std::vector<Tensor>;

// Where a node's input takes its gradient, and the run of its unit that it belongs to.
struct Edge {
  std::shared_ptr<Meta> to;  // null: this input wants no gradient
  Invocation invocation;
};

// A backward closure's way to its node's inputs.
class GradientSink {
 public:
  explicit GradientSink(const std::vector<Edge>& edges);

  // Whether anybody wants the gradient of this input.
  bool wants(int input) const;

  // Runs `write`, which puts the gradient of a parameter-like input where it belongs: into its
  // gradient slot, or into a new tensor of the input's shape and dtype. Not run if nobody wants
  // it. A schedule may defer such tasks; nothing else of the closure may depend on them.
  void post(int input, const std::function<void(const GradientTarget&)>& write);
  // The same target for a closure that cannot defer its writing: open from here until it returns.
  // REQUIRES: wants(input).
  GradientTarget open(int input);
  // After a closure that failed: the slots it was to replace are unwritten again.
  void abandon() const;

  // Inputs whose gradient was posted into a slot, and the new tensors of the others.
  bool in_slot(int input) const { return in_slot_[static_cast<std::size_t>(input)]; }
  Tensor& posted(int input) { return posted_[static_cast<std::size_t>(input)]; }

 private:
  const std::vector<Edge>& edges_;
  std::vector<std::pair<const SlotView*, GradientTarget>> opened_;
  std::vector<bool> in_slot_;
  std::vector<Tensor> posted_;
};

using BackwardFn = std::function<Gradients(const Tensor& grad_output, GradientSink& sink)>;

// One recorded op.
struct Node {
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  // Frees whole chains without recursion.
  ~Node();

  std::string_view op;  // a string literal
  // Where it was recorded, for a watch (value_watch.h); empty without one.
  std::string module;
  std::uint64_t sequence = 0;
  std::vector<Edge> edges;
  // Empty once a backward that did not retain the graph has run it.
  BackwardFn backward;
};

// Whether record() would link an output to one of these inputs.
bool records(const std::vector<Tensor>& inputs);

// Returns `output`, linked to `inputs` when one of them requires grad. `backward` may capture
// SavedTensors and plain values only. Undefined inputs take no gradient. `output` has its values: a
// watch (value_watch.h) reads them here. In a replay
// (recompute.h) no node is made, and the output only looks as if it had history.
Tensor record(std::string_view op, Tensor output, const std::vector<Tensor>& inputs,
              BackwardFn backward);

// record() for an output that is `view(base)`, bytes shared: a view of a parameter with a
// gradient slot takes the same view of its slot and needs no node.
Tensor record_view(std::string_view op, const Tensor& base,
                   const std::function<Tensor(const Tensor&)>& view, BackwardFn backward);

}  // namespace fsdptrain::autograd
