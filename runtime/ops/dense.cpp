#include "runtime/ops/dense.h"

#include "kernels/copy.h"

namespace fsdptrain::ops {

Tensor dense(const Tensor& x) {
  if (x.is_contiguous()) {
    return x.detach();
  }
  const Tensor copy = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels::copy(x.launch(), copy.view(), x.view());
  return copy;
}

void write_dense(const autograd::GradientTarget& target,
                 const std::function<void(const Tensor& out, bool accumulate)>& write) {
  const Tensor& destination = target.destination;
  if (destination.is_contiguous()) {
    write(destination, target.accumulate);
    return;
  }
  const Tensor out = Tensor::empty(destination.shape(), destination.dtype(), destination.device());
  write(out, false);
  autograd::write_gradient(target, out);
}

}  // namespace fsdptrain::ops
