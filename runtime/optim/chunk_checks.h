#pragma once

#include <vector>

#include "runtime/nn/flat_chunk.h"

// What every flat optimizer asks of its chunks before it touches them; messages name `op`.
namespace fsdptrain::optim {

// DTypeError unless parameters and gradients are both float32 or both float64; ShapeError unless
// they are dense, of one length, and hold every segment; DeviceError unless on one device.
void check_chunks(const char* op, const std::vector<nn::FlatChunk>& chunks);

// The same, and as many chunks as the optimizer was made for; `gradient_scale` is undefined or
// one float64.
void check_step(const char* op, const std::vector<nn::FlatChunk>& chunks, std::size_t num_states,
                const Tensor& gradient_scale);

}  // namespace fsdptrain::optim
