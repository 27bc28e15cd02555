#pragma once

#include "models/common/decoder.h"
#include "runtime/data/loader.h"

// A batch of the loader as tensors [batch, seq_len] on a device; on meta only their shapes.
// DeviceError where batches cannot be put there.
namespace fsdptrain::tools {

models::TokenRows rows_of(const data::Batch& batch, Device device);
Tensor targets_of(const data::Batch& batch, Device device);

}  // namespace fsdptrain::tools
