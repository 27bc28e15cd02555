#pragma once

#include "runtime/tensor/tensor.h"

namespace fsdptrain::ops {

// x in another dtype (kernels/copy.h says how values are rounded), float16 included; x itself if
// it has that dtype. The gradient is cast back; an integer result has no history.
Tensor cast(const Tensor& x, DType dtype);

}  // namespace fsdptrain::ops
