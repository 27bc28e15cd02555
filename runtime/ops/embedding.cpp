#include "runtime/ops/embedding.h"

#include "kernels/embedding.h"
#include "kernels/gather.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::GradientTarget;
using autograd::record;
using autograd::SavedTensor;

template <class Index>
void check_values(const char* op, std::span<const Index> indices, std::int64_t size) {
  for (std::size_t position = 0; position < indices.size(); ++position) {
    const auto index = static_cast<std::int64_t>(indices[position]);
    check<ShapeError>(0 <= index && index < size, "{}: index {} at position {} is outside [0, {})",
                      op, index, position, size);
  }
}

// REQUIRES: indices are dense.
void check_range(const char* op, const Tensor& indices, std::int64_t size) {
  if (indices.device().type != DeviceType::Cpu) {
    return;
  }
  if (indices.dtype() == DType::Int64) {
    check_values<std::int64_t>(op, indices.values<std::int64_t>(), size);
  } else {
    check_values<std::int32_t>(op, indices.values<std::int32_t>(), size);
  }
}

kernels::GatherShape gather_shape(const Tensor& x, int dim, const Tensor& indices) {
  Shape expected = x.shape();
  if (indices.dims() == x.dims()) {
    expected[dim] = indices.shape()[dim];
  }
  check<ShapeError>(indices.shape() == expected,
                    "gather: the shape of indices {} differs from {} outside dim {}",
                    indices.shape(), x.shape(), dim);
  kernels::GatherShape shape;
  shape.size = x.shape()[dim];
  shape.picks = indices.shape()[dim];
  for (int d = 0; d < x.dims(); ++d) {
    (d < dim ? shape.outer : shape.inner) *= d == dim ? 1 : x.shape()[d];
  }
  return shape;
}

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& indices) {
  check_floating("embedding", weight);
  check_indices("embedding", indices);
  check_same_device("embedding", weight, indices);
  check<ShapeError>(weight.dims() == 2, "embedding: the weight must be [rows, width], got {}",
                    weight.shape());
  const Tensor index = dense(indices);
  const kernels::EmbeddingShape dims{weight.size(0), weight.size(1), indices.numel()};
  check_range("embedding", index, dims.rows);

  Shape shape = indices.shape();
  shape.push_back(dims.width);
  const Tensor y = Tensor::empty(shape, weight.dtype(), weight.device());
  kernels::embedding(weight.launch(), y.view(), dense(weight).view(), index.view(), dims);

  return record(
      "embedding", y, {weight},
      [index = SavedTensor(index), dims](const Tensor& dy, GradientSink& sink) -> Gradients {
        sink.post(0, [=](const GradientTarget& target) {
          const Tensor from = dense(dy);
          write_dense(target, [&](const Tensor& out, bool accumulate) {
            kernels::embedding_backward(out.launch(), out.view(), from.view(), index.get().view(),
                                        dims, accumulate);
          });
        });
        return {Tensor()};
      });
}

Tensor gather(const Tensor& x, int dim, const Tensor& indices) {
  check_numeric("gather", x);
  check_indices("gather", indices);
  check_same_device("gather", x, indices);
  const kernels::GatherShape dims =
      gather_shape(x, normalize_dim("gather", dim, x.dims()), indices);
  const Tensor index = dense(indices);
  check_range("gather", index, dims.size);

  const Tensor y = Tensor::empty(indices.shape(), x.dtype(), x.device());
  kernels::gather(x.launch(), y.view(), dense(x).view(), index.view(), dims);

  return record("gather", y, {x},
                [index = SavedTensor(index), shape = x.shape(), dims](const Tensor& dy,
                                                                      GradientSink&) -> Gradients {
                  const Tensor dx = Tensor::zeros(shape, dy.dtype(), dy.device());
                  kernels::scatter_add(dx.launch(), dx.view(), index.get().view(), dense(dy).view(),
                                       dims);
                  return {dx};
                });
}

}  // namespace fsdptrain::ops
