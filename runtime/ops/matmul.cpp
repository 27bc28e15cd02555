#include "runtime/ops/matmul.h"

#include "runtime/autograd/node.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/ops/matrix.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::GradientTarget;
using autograd::record;
using autograd::SavedTensor;

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_factors("matmul", a, b);
  check<ShapeError>(a.dims() >= 2 && b.dims() >= 2 && a.size(-1) == b.size(-2),
                    "matmul: shapes {} and {} do not multiply", a.shape(), b.shape());
  bool same_batch = a.dims() == b.dims();
  for (int dim = 0; same_batch && dim + 2 < a.dims(); ++dim) {
    same_batch = a.shape()[dim] == b.shape()[dim];
  }
  check<ShapeError>(same_batch || b.dims() == 2,
                    "matmul: the leading dimensions of {} and {} differ", a.shape(), b.shape());
  const Tensor y =
      autograd::keep_or_run("matmul", [&] { return std::vector{product(a, b)}; }).front();
  return record("matmul", y, {a, b},
                [a = b.requires_grad() ? SavedTensor(a) : SavedTensor(),
                 b = a.requires_grad() ? SavedTensor(b) : SavedTensor(),
                 shared = b.dims() == 2](const Tensor& dy, GradientSink& sink) -> Gradients {
                  Gradients gradients(2);
                  if (sink.wants(0)) {
                    gradients[0] = product(dy, views::transpose(b.get(), -1, -2));
                  }
                  if (shared) {
                    sink.post(1, [a, dy](const GradientTarget& target) {
                      write_shared_factor_gradient(target, a.get(), dy);
                    });
                  } else if (sink.wants(1)) {
                    gradients[1] = product(views::transpose(a.get(), -1, -2), dy);
                  }
                  return gradients;
                });
}

}  // namespace fsdptrain::ops
