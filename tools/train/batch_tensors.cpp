#include "tools/train/batch_tensors.h"

#include <algorithm>

#include "runtime/tensor/transfer.h"

namespace fsdptrain::tools {
namespace {

Tensor to_tensor(const std::vector<std::int64_t>& values, const data::Batch& batch, Device device) {
  const Shape shape{batch.batch, batch.seq_len};
  if (device == Device::meta()) {
    return Tensor::empty(shape, DType::Int64, device, MemoryCategory::Data);
  }
  const Tensor host = pinned(shape, DType::Int64, device);
  std::ranges::copy(values, host.mutable_values<std::int64_t>().begin());
  return to_device(host, device);
}

}  // namespace

models::TokenRows rows_of(const data::Batch& batch, Device device) {
  return {.tokens_BT = to_tensor(batch.tokens, batch, device),
          .positions_BT = to_tensor(batch.positions, batch, device),
          .document_ids_BT = to_tensor(batch.document_ids, batch, device)};
}

Tensor targets_of(const data::Batch& batch, Device device) {
  return to_tensor(batch.targets, batch, device);
}

}  // namespace fsdptrain::tools
