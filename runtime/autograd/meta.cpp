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

Tensor gradient_of(const Meta& leaf) {
  if (!leaf.slot) {
    return leaf.grad;
  }
  return leaf.slot->slots.front()->written ? leaf.slot->destination : Tensor();
}

void clear_gradient(Meta& leaf) {
  leaf.grad = Tensor();
  if (leaf.slot) {
    for (const auto& slot : leaf.slot->slots) {
      slot->written = false;
    }
  }
}

}  // namespace fsdptrain::autograd
