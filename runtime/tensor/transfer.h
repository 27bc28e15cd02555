#pragma once

#include "runtime/tensor/tensor.h"

// Bytes between devices. Without history: a gradient does not follow them.
namespace fsdptrain {

// A tensor on the CPU that copies from and to `device` run beside the host with. Not initialised.
// DeviceError for meta.
Tensor pinned(const Shape& shape, DType dtype, Device device,
              MemoryCategory category = MemoryCategory::Data);

// out = in, on the current stream of the device that is not the CPU; the host goes on, and does not
// touch a pinned side before the stream has passed. Where that side is not pinned the host may
// wait. ShapeError and DTypeError unless both are contiguous, of one dtype and as many elements;
// DeviceError for the meta device.
void copy_async(const Tensor& out, const Tensor& in);

// The same values on `device`, contiguous: the tensor itself if it is that already. To the CPU the
// host waits for them. DeviceError for the meta device.
Tensor to_device(const Tensor& tensor, Device device);

}  // namespace fsdptrain
