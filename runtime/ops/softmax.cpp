#include "runtime/ops/softmax.h"

#include "kernels/softmax.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using kernels::SoftmaxForm;
using kernels::SoftmaxShape;

Tensor apply(const char* op, SoftmaxForm form, const Tensor& x) {
  check_floating(op, x);
  check<ShapeError>(x.dims() > 0, "{}: needs at least one dimension, got shape {}", op, x.shape());
  const std::int64_t width = x.size(-1);
  const SoftmaxShape shape{width == 0 ? 0 : x.numel() / width, width};
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels::softmax(x.launch(), y.view(), dense(x).view(), shape, form);

  return autograd::record(
      op, y, {x},
      [y = autograd::SavedTensor(y), shape, form](const Tensor& dy, GradientSink&) -> Gradients {
        const Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
        kernels::softmax_backward(dx.launch(), dx.view(), dense(dy).view(), y.get().view(), shape,
                                  form);
        return {dx};
      });
}

}  // namespace

Tensor softmax(const Tensor& x) {
  return apply("softmax", SoftmaxForm::Probability, x);
}

Tensor log_softmax(const Tensor& x) {
  return apply("log_softmax", SoftmaxForm::Log, x);
}

}  // namespace fsdptrain::ops
