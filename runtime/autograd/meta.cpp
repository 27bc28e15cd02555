#include "runtime/autograd/meta.h"

#include "runtime/autograd/node.h"

namespace fsdptrain::autograd {

std::shared_ptr<Meta> make_leaf(const Tensor& tensor) {
  auto meta = std::make_shared<Meta>();
  meta->shape = tensor.shape();
  meta->dtype = tensor.dtype();
  meta->device = tensor.device();
  return meta;
}

MemoryCategory gradient_category(const Meta& meta) {
  return meta.producer == nullptr ? MemoryCategory::Gradient : MemoryCategory::Activation;
}

Tensor gradient_of(const Meta& leaf) {
  if (!leaf.slot) {
    return leaf.grad;
  }
  return leaf.slot->slots.front()->written ? leaf.slot->destination : Tensor();
}

void clear_gradient(Meta& leaf) {
  leaf.grad = Tensor();
  set_gradient_ahead(leaf, 0);
  if (leaf.slot) {
    for (const auto& slot : leaf.slot->slots) {
      slot->written = false;
    }
  }
}

std::uint64_t gradient_ahead(const Meta& meta) {
  return meta.slot ? meta.slot->ahead() : meta.gradient_ahead;
}

void set_gradient_ahead(Meta& meta, std::uint64_t forward) {
  if (meta.slot) {
    meta.slot->set_ahead(forward);
  } else {
    meta.gradient_ahead = forward;
  }
}

}  // namespace fsdptrain::autograd
