#include "models/common/decoder.h"

#include "runtime/ops/linear.h"

namespace fsdptrain::models {

Tensor Decoder::logits(const Tensor& tokens_BT) {
  return through_hooks({tokens_BT},
                       [this](const Tensors& inputs) {
                         return Tensors{ops::linear(hidden(inputs[0]), head_weight())};
                       })
      .front();
}

Tensor Decoder::loss(const Tensor& tokens_BT, const Tensor& targets_BT, double loss_scale,
                     ops::HeadForm form) {
  return through_hooks(
             {tokens_BT, targets_BT},
             [=, this](const Tensors& inputs) {
               return Tensors{ops::linear_cross_entropy(hidden(inputs[0]), head_weight(), inputs[1],
                                                        {.loss_scale = loss_scale, .form = form})};
             })
      .front();
}

void Decoder::set_block_recompute(nn::Recompute policy) {
  for (nn::Module* block : blocks()) {
    block->set_recompute(policy);
  }
}

}  // namespace fsdptrain::models
