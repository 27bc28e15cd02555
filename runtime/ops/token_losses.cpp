#include "runtime/ops/token_losses.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"
#include "runtime/ops/matrix.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {

DType loss_dtype(const Tensor& logits) {
  return logits.dtype() == DType::Float64 ? DType::Float64 : DType::Float32;
}

Tensor as_dense_rows(const Tensor& x) {
  return views::reshape(dense(x), rows_shape(x));
}
Tensor as_dense_vector(const Tensor& x) {
  return views::reshape(dense(x), Shape{x.numel()});
}

void check_targets(const char* op, const Tensor& x, const Tensor& targets) {
  check_floating(op, x);
  check<DTypeError>(targets.dtype() == DType::Int64, "{}: targets must be int64, got {}", op,
                    targets.dtype());
  check_same_device(op, x, targets);
  bool same = x.dims() >= 2 && targets.dims() + 1 == x.dims();
  for (int dim = 0; same && dim < targets.dims(); ++dim) {
    same = x.shape()[dim] == targets.shape()[dim];
  }
  check<ShapeError>(same, "{}: targets of shape {} do not fit an input of shape {}", op,
                    targets.shape(), x.shape());
}

void check_token_loss(const char* op, const kernels::TokenLoss& loss) {
  check<ConfigError>(0 <= loss.label_smoothing && loss.label_smoothing < 1,
                     "{}: label_smoothing must be in [0, 1), got {}", op, loss.label_smoothing);
  check<ConfigError>(0 <= loss.z_loss && std::isfinite(loss.z_loss),
                     "{}: z_loss must be finite and not negative, got {}", op, loss.z_loss);
}

std::int64_t count_targets(const char* op, const Tensor& targets_N, std::int64_t classes,
                           std::int64_t ignore_index) {
  if (targets_N.device().type != DeviceType::Cpu) {
    return targets_N.numel();
  }
  std::int64_t position = 0;
  std::int64_t counted = 0;
  for (const std::int64_t target : targets_N.values<std::int64_t>()) {
    if (target != ignore_index) {
      check<ShapeError>(0 <= target && target < classes,
                        "{}: the target at position {} must be in [0, {}) or {}, got {}", op,
                        position, classes, ignore_index, target);
      ++counted;
    }
    ++position;
  }
  return counted;
}

Tensor scaled_total(const Tensor& losses_N, double factor) {
  const Tensor sum = Tensor::empty(Shape{}, losses_N.dtype(), losses_N.device());
  kernels::sum(losses_N.launch(), sum.view(), losses_N.view(),
               {.outer = 1, .reduced = losses_N.numel(), .inner = 1});
  Tensor y = Tensor::empty(sum.shape(), sum.dtype(), sum.device());
  kernels::Affine f;
  f.factor = factor;
  f.term = 0;
  kernels::map(sum.launch(), f, y.view(), sum.view());
  return y;
}

}  // namespace fsdptrain::ops
