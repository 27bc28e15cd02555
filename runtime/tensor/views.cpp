#include "runtime/tensor/views.h"

#include <array>
#include <optional>

#include "runtime/base/error.h"

namespace fsdptrain::views {
namespace {

// Strides of x's elements under another shape of as many elements, if some exist: runs of
// dimensions that are dense in x are cut anew.
std::optional<Strides> reshaped_strides(const Tensor& x, const Shape& shape) {
  Strides strides = Strides::contiguous(shape);
  if (x.numel() == 0 || x.is_contiguous()) {
    return strides;
  }
  int target = shape.dims() - 1;
  int dim = x.dims() - 1;
  while (dim >= 0) {
    if (x.shape()[dim] == 1) {
      --dim;
      continue;
    }
    const std::int64_t unit = x.strides()[dim];
    std::int64_t run = 1;
    while (dim >= 0 && (x.shape()[dim] == 1 || x.strides()[dim] == unit * run)) {
      run *= x.shape()[dim];
      --dim;
    }
    std::int64_t covered = 1;
    while (target >= 0 && covered < run) {
      strides[target] = unit * covered;
      covered *= shape[target];
      --target;
    }
    if (covered != run) {
      return std::nullopt;
    }
  }
  return strides;
}

}  // namespace

Shape infer_shape(const Tensor& x, std::span<const std::int64_t> sizes) {
  std::int64_t known = 1;
  int unknown = -1;
  detail::DimList list(sizes);
  for (int dim = 0; dim < list.size(); ++dim) {
    if (list[dim] == -1) {
      check<ShapeError>(unknown < 0, "reshape: at most one size may be -1, got {}", list);
      unknown = dim;
    } else {
      check<ShapeError>(!__builtin_mul_overflow(known, list[dim], &known),
                        "reshape: the number of elements of {} overflows 64 bits", list);
    }
  }
  if (unknown >= 0) {
    check<ShapeError>(known > 0 && x.numel() % known == 0,
                      "reshape: shape {} does not divide into {}", x.shape(), list);
    list[unknown] = x.numel() / known;
  }
  return Shape(std::span<const std::int64_t>(list.begin(), list.end()));
}

bool can_reshape(const Tensor& x, const Shape& shape) {
  return x.numel() == shape.numel() && reshaped_strides(x, shape).has_value();
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  check<ShapeError>(x.numel() == shape.numel(), "reshape: shape {} has not as many elements as {}",
                    x.shape(), shape);
  const std::optional<Strides> strides = reshaped_strides(x, shape);
  check<ShapeError>(strides.has_value(), "reshape: {} with strides {} cannot become {} in place",
                    x.shape(), x.strides(), shape);
  return x.alias(shape, *strides, x.offset());
}

Tensor transpose(const Tensor& x, int dim_a, int dim_b) {
  const int a = normalize_dim("transpose", dim_a, x.dims());
  const int b = normalize_dim("transpose", dim_b, x.dims());
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return x.alias(shape, strides, x.offset());
}

Tensor permute(const Tensor& x, std::span<const int> dims) {
  check<ShapeError>(static_cast<int>(dims.size()) == x.dims(),
                    "permute: needs {} dims for shape {}, got {}", x.dims(), x.shape(),
                    dims.size());
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::array<bool, kMaxDims> seen{};
  for (int i = 0; i < x.dims(); ++i) {
    const int dim = normalize_dim("permute", dims[static_cast<std::size_t>(i)], x.dims());
    check<ShapeError>(!seen[static_cast<std::size_t>(dim)], "permute: dim {} is named twice", dim);
    seen[static_cast<std::size_t>(dim)] = true;
    shape[i] = x.shape()[dim];
    strides[i] = x.strides()[dim];
  }
  return x.alias(shape, strides, x.offset());
}

Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  const int d = normalize_dim("narrow", dim, x.dims());
  check<ShapeError>(start >= 0 && length >= 0 && start <= x.shape()[d] - length,
                    "narrow: [{}, {} + {}) is outside dim {} of shape {}", start, start, length, d,
                    x.shape());
  Shape shape = x.shape();
  shape[d] = length;
  // A layout without elements stays where it is: its storage may end here.
  const std::int64_t skipped = shape.numel() == 0 ? 0 : start * x.strides()[d];
  return x.alias(shape, x.strides(), x.offset() + skipped);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  const int added = shape.dims() - x.dims();
  check<ShapeError>(added >= 0, "expand: shape {} does not expand to {}", x.shape(), shape);
  Strides strides = Strides::contiguous(shape);
  for (int dim = 0; dim < shape.dims(); ++dim) {
    const std::int64_t from = dim < added ? 1 : x.shape()[dim - added];
    check<ShapeError>(from == 1 || from == shape[dim], "expand: shape {} does not expand to {}",
                      x.shape(), shape);
    strides[dim] = from == shape[dim] && dim >= added ? x.strides()[dim - added] : 0;
  }
  return x.alias(shape, strides, x.offset());
}

Tensor unsqueeze(const Tensor& x, int dim) {
  const int d = normalize_dim("unsqueeze", dim, x.dims() + 1);
  Shape shape = x.shape();
  Strides strides = x.strides();
  strides.insert(d, d < x.dims() ? shape[d] * strides[d] : 1);
  shape.insert(d, 1);
  return x.alias(shape, strides, x.offset());
}

Tensor squeeze(const Tensor& x, int dim) {
  const int d = normalize_dim("squeeze", dim, x.dims());
  check<ShapeError>(x.shape()[d] == 1, "squeeze: dim {} of shape {} is not 1", d, x.shape());
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.erase(d);
  strides.erase(d);
  return x.alias(shape, strides, x.offset());
}

}  // namespace fsdptrain::views
