#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor/tensor.h"

// Activation checkpointing, not re-entrant: a region keeps its inputs and no activations. Its
// nodes are part of the graph like all others; the first of them whose backward reads a saved
// tensor replays the region's forward, once, which brings back what all of them saved.
namespace fsdptrain::autograd {

struct RecomputeOptions {
  // What errors call the region, for example "h.3".
  std::string name;
  // Ops whose outputs are kept, so that a replay does not compute them: names that ops pass to
  // keep_or_run(). The characters have static storage: the region lives as long as its graph.
  std::vector<std::string_view> keep;
  // Whether a name in `keep` may be that of no op of the forward; else AutogradError after it.
  bool keep_optional = false;
};

using RegionBody = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

// body(inputs), recorded, with what its ops save for backward left out. Without gradients, just
// body(inputs).
//
// The replay runs `body` with the same inputs, random keys and gradient mode, and records nothing.
// It must compute the same: AutogradError naming the first saved tensor that differs in op, shape
// or dtype, or that is missing. So the body depends on nothing but its inputs, on parameters,
// leaves and constants (a change in place of any is noticed) and on what it captures, by value,
// that lives and stays the same until the last backward. Tensors that it computes from come in as
// inputs: captured outputs of other regions make a chain that is freed by recursion. Regions nest:
// a replay of the outer one runs the inner one's body, a replay of the inner one may need one of
// the outer first.
std::vector<Tensor> recomputed(const std::vector<Tensor>& inputs, RegionBody body,
                               RecomputeOptions options);

// Whether what runs is a replay: hooks with effects beyond their tensors ask this.
bool replaying();
// Whether what runs may be replayed later, or is a replay.
bool in_region();

// compute(), or what it gave in the forward, if this is a replay of a region that keeps outputs
// of `op`, a string literal. The outputs have no history yet; `compute` calls no op that saves.
std::vector<Tensor> keep_or_run(std::string_view op,
                                const std::function<std::vector<Tensor>()>& compute);

}  // namespace fsdptrain::autograd
