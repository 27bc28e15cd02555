#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/autograd/gradient_slot.h"
#include "runtime/autograd/parameter_owner.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::autograd {

struct Node;

// What autograd knows about one tensor. A leaf has no producer. A view of a parameter with a
// gradient slot has none either: gradients for it go to the same view of the slot, and `leaves`
// names the parameters it shows.
struct Meta {
  Shape shape;
  DType dtype = DType::Float32;
  Device device;
  // Set for parameters: the dotted path of the module tree.
  std::string name;

  std::shared_ptr<Node> producer;
  std::vector<std::shared_ptr<Meta>> leaves;

  // A leaf's gradient: in its slot where it has one, else here.
  std::optional<SlotView> slot;
  Tensor grad;
  // Of a tensor without slot: what GradientSlot::ahead is for the others.
  std::uint64_t gradient_ahead = 0;
  // None for tensors that no owner keeps.
  OwnerRef owner;

  // Run when the whole gradient of this tensor is known, before its producer's backward.
  std::vector<std::function<void()>> pre_backward_hooks;
  // Run once per backward pass that reaches this leaf, after its gradient has its final value.
  std::vector<std::function<void()>> post_accumulate_hooks;
};

std::shared_ptr<Meta> make_leaf(const Tensor& tensor);

// What the memory of a sum of this tensor's gradients counts as: a leaf keeps its own.
MemoryCategory gradient_category(const Meta& meta);

// The gradient of a leaf: undefined if nothing was written since it was cleared.
Tensor gradient_of(const Meta& leaf);
void clear_gradient(Meta& leaf);

// The number of the forward that computed a gradient of this tensor whose backward is still to
// come; 0: none.
std::uint64_t gradient_ahead(const Meta& meta);
void set_gradient_ahead(Meta& meta, std::uint64_t forward);

}  // namespace fsdptrain::autograd
