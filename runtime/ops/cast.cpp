#include "runtime/ops/cast.h"

#include "kernels/copy.h"
#include "runtime/autograd/node.h"

namespace fsdptrain::ops {

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) {
    return x;
  }
  const Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  kernels::copy(x.launch(), y.view(), x.view());
  if (!is_floating(dtype)) {
    return y;
  }
  return autograd::record(
      "cast", y, {x},
      [from = x.dtype()](const Tensor& dy, autograd::GradientSink&) -> autograd::Gradients {
        return {cast(dy, from)};
      });
}

}  // namespace fsdptrain::ops
