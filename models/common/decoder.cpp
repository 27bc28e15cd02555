#include "models/common/decoder.h"

#include "runtime/base/error.h"
#include "runtime/ops/linear.h"

namespace fsdptrain::models {

TokenRows one_document(const Tensor& tokens_BT) {
  const Shape& shape = tokens_BT.shape();
  check<ShapeError>(tokens_BT.dims() == 2, "tokens: must be [batch, position], got {}", shape);
  const auto zeros = [&] {
    return Tensor::zeros(shape, DType::Int64, tokens_BT.device(), MemoryCategory::Data);
  };
  TokenRows rows{tokens_BT, zeros(), zeros()};
  if (tokens_BT.device() == Device::cpu()) {
    std::int64_t index = 0;
    for (std::int64_t& position : rows.positions_BT.mutable_values<std::int64_t>()) {
      position = index++ % shape[1];
    }
  } else {
    check<DeviceError>(tokens_BT.device() == Device::meta(),
                       "tokens: positions can be written on cpu, not on {}", tokens_BT.device());
  }
  return rows;
}

Tensor Decoder::logits(const TokenRows& rows) {
  return through_hooks({rows.tokens_BT, rows.positions_BT, rows.document_ids_BT},
                       [this](const Tensors& inputs) {
                         return Tensors{
                             ops::linear(hidden({inputs[0], inputs[1], inputs[2]}), head_weight())};
                       })
      .front();
}

Tensor Decoder::loss(const TokenRows& rows, const Tensor& targets_BT,
                     const ops::LinearCrossEntropyOptions& options) {
  return through_hooks(
             {rows.tokens_BT, rows.positions_BT, rows.document_ids_BT, targets_BT},
             [this, options](const Tensors& inputs) {
               return Tensors{ops::linear_cross_entropy(hidden({inputs[0], inputs[1], inputs[2]}),
                                                        head_weight(), inputs[3], options)};
             })
      .front();
}

void Decoder::set_block_recompute(nn::Recompute policy) {
  for (nn::Module* block : blocks()) {
    block->set_recompute(policy);
  }
}

}  // namespace fsdptrain::models
