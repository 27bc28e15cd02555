#include "runtime/ops/inplace.h"

#include <utility>

#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

void check_target(const char* op, const Tensor& x) {
  check_defined(op, x);
  check<AutogradError>(!autograd::grad_enabled() || !x.requires_grad(),
                       "{}: in-place on {} of shape {}: use NoGradGuard or detach()", op,
                       x.is_leaf() ? "a leaf that requires grad" : "a tensor with history",
                       x.shape());
  for (int dim = 0; dim < x.dims(); ++dim) {
    check<ShapeError>(x.strides()[dim] != 0 || x.shape()[dim] <= 1,
                      "{}: in-place on an expanded tensor of shape {} and strides {}", op,
                      x.shape(), x.strides());
  }
}

// The bytes of x's storage from the first to the last that x reaches.
std::pair<std::int64_t, std::int64_t> byte_range(const Tensor& x) {
  std::int64_t last = x.offset();
  for (int dim = 0; dim < x.dims(); ++dim) {
    last += (x.shape()[dim] - 1) * x.strides()[dim];
  }
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  return {x.offset() * size, (last + 1) * size};
}

// Writing x while `source`, of x's shape, is read must not change what is still to be read.
void check_overlap(const char* op, const Tensor& x, const Tensor& source) {
  if (x.storage() != source.storage() || x.numel() == 0) {
    return;
  }
  bool same_layout = x.offset() == source.offset() && size_of(x.dtype()) == size_of(source.dtype());
  for (int dim = 0; dim < x.dims(); ++dim) {
    same_layout = same_layout && (x.shape()[dim] == 1 || x.strides()[dim] == source.strides()[dim]);
  }
  const auto [x_begin, x_end] = byte_range(x);
  const auto [source_begin, source_end] = byte_range(source);
  check<ShapeError>(same_layout || x_end <= source_begin || source_end <= x_begin,
                    "{}: the source may overlap the target of shape {} in another layout "
                    "(strides {} at {} and {} at {}): clone() it",
                    op, x.shape(), source.strides(), source.offset(), x.strides(), x.offset());
}

// `source` as a view of x's shape.
Tensor operand(const char* op, const Tensor& x, const Tensor& source) {
  check_target(op, x);
  check_same_device(op, x, source);
  check<AutogradError>(!autograd::grad_enabled() || !source.requires_grad(),
                       "{}: the source of shape {} requires grad, and in-place ops record "
                       "nothing: detach() it",
                       op, source.shape());
  check<ShapeError>(broadcast_shapes(op, x.shape(), source.shape()) == x.shape(),
                    "{}: shape {} does not broadcast to {}", op, source.shape(), x.shape());
  const Tensor view = views::expand(source.detach(), x.shape());
  check_overlap(op, x, view);
  return view;
}

}  // namespace

void copy_(const Tensor& x, const Tensor& source) {
  const Tensor from = operand("copy_", x, source);
  kernels::copy(x.launch(), x.view(), from.view());
  x.storage()->bump_version();
}

void fill_(const Tensor& x, double value) {
  check_target("fill_", x);
  kernels::fill(x.launch(), x.view(), value);
  x.storage()->bump_version();
}

void add_(const Tensor& x, const Tensor& y, double factor) {
  check_same_dtype("add_", x, y);
  check_floating("add_", x);
  const Tensor term = operand("add_", x, y);
  kernels::AddScaled f;
  f.factor = factor;
  kernels::map(x.launch(), f, x.view(), x.view(), term.view());
  x.storage()->bump_version();
}

void lerp_(const Tensor& average, const Tensor& value, double weight) {
  check_same_dtype("lerp_", average, value);
  check_floating("lerp_", average);
  const Tensor towards = operand("lerp_", average, value);
  kernels::Lerp f;
  f.weight = weight;
  kernels::map(average.launch(), f, average.view(), average.view(), towards.view());
  average.storage()->bump_version();
}

void scale_(const Tensor& x, double factor) {
  check_floating("scale_", x);
  check_target("scale_", x);
  kernels::Affine f;
  f.factor = factor;
  kernels::map(x.launch(), f, x.view(), x.view());
  x.storage()->bump_version();
}

}  // namespace fsdptrain::ops
