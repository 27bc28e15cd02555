#include "models/common/decoder.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/ops/linear.h"
#include "runtime/tensor/transfer.h"

namespace fsdptrain::models {

TokenRows one_document(const Tensor& tokens_BT) {
  const Shape& shape = tokens_BT.shape();
  check<ShapeError>(tokens_BT.dims() == 2, "tokens: must be [batch, position], got {}", shape);
  const Device device = tokens_BT.device();
  const auto zeros = [&](Device on) {
    return Tensor::zeros(shape, DType::Int64, on, MemoryCategory::Data);
  };
  if (device == Device::meta()) {
    return {tokens_BT, zeros(device), zeros(device)};
  }
  const Tensor positions = zeros(Device::cpu());
  std::int64_t index = 0;
  for (std::int64_t& position : positions.mutable_values<std::int64_t>()) {
    position = index++ % shape[1];
  }
  return {tokens_BT, to_device(positions, device), zeros(device)};
}

nn::Module::Tensors Decoder::with_rows(const TokenRows& rows) const {
  const Shape& shape = rows.tokens_BT.shape();
  check<ShapeError>(rows.tokens_BT.dims() == 2 && rows.tokens_BT.size(1) <= max_seq_len(),
                    "model: tokens must be [batch, at most {} positions], got {}", max_seq_len(),
                    shape);
  check<ShapeError>(rows.positions_BT.shape() == shape && rows.document_ids_BT.shape() == shape,
                    "model: positions and document ids must have the shape {} of the tokens, got "
                    "{} and {}",
                    shape, rows.positions_BT.shape(), rows.document_ids_BT.shape());
  return {rows.tokens_BT, rows.positions_BT, rows.document_ids_BT};
}

Tensor Decoder::logits(const TokenRows& rows) {
  return through_hooks(with_rows(rows),
                       [this](const Tensors& inputs) {
                         return Tensors{
                             ops::linear(hidden({inputs[0], inputs[1], inputs[2]}), head_weight())};
                       })
      .front();
}

Tensor Decoder::loss(const TokenRows& rows, const Tensor& targets_BT,
                     const ops::LinearCrossEntropyOptions& options) {
  Tensors arguments = with_rows(rows);
  arguments.push_back(targets_BT);
  return through_hooks(
             std::move(arguments),
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
