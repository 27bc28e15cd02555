#pragma once

#include <cstdint>
#include <functional>

#include "runtime/tensor/tensor.h"

namespace fsdptrain::autograd {

struct BackwardOptions {
  // The gradient of the root; undefined: ones, and the root must have one element.
  Tensor grad_output;
  // Keep what backward needs, so that the graph can be run again.
  bool retain_graph = false;
};

// What a pass did, for tests and the profile of a step.
struct BackwardStats {
  std::int64_t nodes = 0;
  // Elements of parameter gradients that the engine had to add, because no op wrote them to
  // their slot.
  std::int64_t slot_elements_added = 0;
  // Recomputed regions that ran again.
  std::int64_t replays = 0;
};

// Accumulates d(root)/d(leaf) into the gradient of every leaf below `root` that requires grad.
// Nodes run in reverse order of creation, one at a time, without recursion. AutogradError: no
// history, a graph that was run and not retained, a call from within a backward or a recomputed
// region, a saved tensor that changed, an owner of parameters that is gone. Errors from ops keep
// their type and gain "backward of <op>".
BackwardStats backward(const Tensor& root, const BackwardOptions& options = {});

// Runs `callback` once at the end of the outermost backward pass that is under way, after every
// leaf is final; AutogradError outside a pass.
void queue_callback(std::function<void()> callback);

}  // namespace fsdptrain::autograd
