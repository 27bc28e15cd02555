#include "runtime/ops/reduction.h"

#include <algorithm>
#include <array>

#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/gather.h"
#include "kernels/reduce.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::GradientTarget;
using autograd::record;
using kernels::ReduceShape;

using DimSet = std::array<bool, kMaxDims>;

DimSet dim_set(const char* op, const Tensor& x, std::span<const int> dims) {
  DimSet reduced{};
  if (dims.empty()) {
    std::fill_n(reduced.begin(), x.dims(), true);
  }
  for (const int dim : dims) {
    bool& flag = reduced[static_cast<std::size_t>(normalize_dim(op, dim, x.dims()))];
    check<ShapeError>(!flag, "{}: dim {} of shape {} is named twice", op, dim, x.shape());
    flag = true;
  }
  return reduced;
}

Shape reduced_shape(const Shape& shape, const DimSet& reduced, bool keep_dims) {
  Shape result;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    if (!reduced[static_cast<std::size_t>(dim)]) {
      result.push_back(shape[dim]);
    } else if (keep_dims) {
      result.push_back(1);
    }
  }
  return result;
}

// The dimensions of a dense tensor before, within and behind the reduced ones.
struct Layout {
  Tensor x;
  ReduceShape shape;
};

// A layout of x in which the reduced dimensions are neighbours: x as it is, or a copy in which
// they come last.
Layout reduce_layout(const Tensor& x, const DimSet& reduced) {
  ReduceShape shape;
  bool neighbours = true;
  int phase = 0;  // before, within, behind
  for (int dim = 0; dim < x.dims(); ++dim) {
    const std::int64_t size = x.shape()[dim];
    if (reduced[static_cast<std::size_t>(dim)]) {
      neighbours = neighbours && (phase < 2 || size == 1);
      phase = size == 1 ? phase : std::max(phase, 1);
      shape.reduced *= size;
    } else if (size != 1) {
      phase = phase == 0 ? 0 : 2;
      (phase == 0 ? shape.outer : shape.inner) *= size;
    }
  }
  if (neighbours) {
    return {dense(x), shape};
  }
  std::array<int, kMaxDims> order{};
  int kept = 0;
  for (const bool wanted : {false, true}) {
    for (int dim = 0; dim < x.dims(); ++dim) {
      if (reduced[static_cast<std::size_t>(dim)] == wanted) {
        order[static_cast<std::size_t>(kept++)] = dim;
      }
    }
  }
  const Tensor moved = views::permute(x, {order.data(), static_cast<std::size_t>(x.dims())});
  return {dense(moved), {shape.outer * shape.inner, shape.reduced, 1}};
}

// The gradient of a sum, factor * dy, repeated over the reduced dimensions.
Tensor spread(const Tensor& dy, const Shape& shape, const DimSet& reduced, double factor) {
  const Tensor kept = views::reshape(dense(dy), reduced_shape(shape, reduced, true));
  const Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
  kernels::Affine f;
  f.factor = factor;
  kernels::map(dy.launch(), f, dx.view(), views::expand(kept, shape).view());
  return dx;
}

Tensor sum_over(const char* op, const Tensor& x, const DimSet& reduced, bool keep_dims,
                bool divide) {
  const Layout layout = reduce_layout(x, reduced);
  const Tensor y =
      Tensor::empty(reduced_shape(x.shape(), reduced, keep_dims), x.dtype(), x.device());
  const std::int64_t divisor = divide ? layout.shape.reduced : 1;
  kernels::sum(x.launch(), y.view(), layout.x.view(), layout.shape, {.divisor = divisor});
  return record(
      op, y, {x},
      [shape = x.shape(), reduced, divisor](const Tensor& dy, GradientSink&) -> Gradients {
        return {spread(dy, shape, reduced, 1.0 / static_cast<double>(divisor))};
      });
}

// The dimensions of x that sum away to leave `shape`, if x is a broadcast of it.
DimSet broadcast_dims(const Tensor& x, const Shape& shape) {
  DimSet reduced{};
  const int added = x.dims() - shape.dims();
  check<ShapeError>(added >= 0, "sum_to_shape: {} is no broadcast of {}", x.shape(), shape);
  for (int dim = 0; dim < x.dims(); ++dim) {
    const std::int64_t wanted = dim < added ? 1 : shape[dim - added];
    check<ShapeError>(wanted == 1 || wanted == x.shape()[dim],
                      "sum_to_shape: {} is no broadcast of {}", x.shape(), shape);
    reduced[static_cast<std::size_t>(dim)] = dim < added || wanted != x.shape()[dim];
  }
  return reduced;
}

// One dimension of at least one element.
Layout extremum_layout(const char* op, const Tensor& x, const DimSet& reduced) {
  check_numeric(op, x);
  Layout layout = reduce_layout(x, reduced);
  check<ShapeError>(layout.shape.reduced > 0, "{}: shape {} has no element to choose from", op,
                    x.shape());
  return layout;
}

}  // namespace

Tensor sum(const Tensor& x, std::span<const int> dims, bool keep_dims) {
  check_numeric("sum", x);
  return sum_over("sum", x, dim_set("sum", x, dims), keep_dims, false);
}

Tensor mean(const Tensor& x, std::span<const int> dims, bool keep_dims) {
  check_floating("mean", x);
  return sum_over("mean", x, dim_set("mean", x, dims), keep_dims, true);
}

Tensor max(const Tensor& x, int dim, bool keep_dims) {
  const DimSet reduced = dim_set("max", x, {&dim, 1});
  const Layout layout = extremum_layout("max", x, reduced);
  const Tensor y =
      Tensor::empty(reduced_shape(x.shape(), reduced, keep_dims), x.dtype(), x.device());
  kernels::max(x.launch(), y.view(), layout.x.view(), layout.shape);
  if (!autograd::records({x})) {
    return y;
  }
  return record("max", y, {x},
                [positions = autograd::SavedTensor(argmax(x, dim)), shape = x.shape(),
                 dims = layout.shape](const Tensor& dy, GradientSink&) -> Gradients {
                  const Tensor dx = Tensor::zeros(shape, dy.dtype(), dy.device());
                  kernels::scatter_add(dy.launch(), dx.view(), positions.get().view(),
                                       dense(dy).view(), {dims.outer, dims.reduced, 1, dims.inner});
                  return {dx};
                });
}

Tensor argmax(const Tensor& x, int dim, bool keep_dims) {
  const DimSet reduced = dim_set("argmax", x, {&dim, 1});
  const Layout layout = extremum_layout("argmax", x, reduced);
  const Tensor y =
      Tensor::empty(reduced_shape(x.shape(), reduced, keep_dims), DType::Int64, x.device());
  kernels::argmax(x.launch(), y.view(), layout.x.view(), layout.shape);
  return y;
}

Tensor sum_to_shape(const Tensor& x, const Shape& shape) {
  check_numeric("sum_to_shape", x);
  if (x.shape() == shape) {
    return x.detach();
  }
  const Layout layout = reduce_layout(x, broadcast_dims(x, shape));
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  kernels::sum(x.launch(), y.view(), layout.x.view(), layout.shape);
  return y;
}

void sum_into(const GradientTarget& target, const Tensor& x) {
  check_floating("sum_into", x);
  const Layout layout = reduce_layout(x, broadcast_dims(x, target.destination.shape()));
  write_dense(target, [&](const Tensor& out, bool accumulate) {
    kernels::sum(x.launch(), out.view(), layout.x.view(), layout.shape, {.accumulate = accumulate});
  });
}

}  // namespace fsdptrain::ops
