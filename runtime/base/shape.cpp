#include "runtime/base/shape.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace fsdptrain {
namespace detail {

DimList::DimList(std::span<const std::int64_t> values) {
  check<ShapeError>(values.size() <= kMaxDims, "a tensor has at most {} dimensions, got {}",
                    kMaxDims, values.size());
  std::ranges::copy(values, values_.begin());
  size_ = static_cast<int>(values.size());
}

void DimList::push_back(std::int64_t value) {
  insert(size_, value);
}

void DimList::insert(int dim, std::int64_t value) {
  check<ShapeError>(size_ < kMaxDims, "a tensor has at most {} dimensions", kMaxDims);
  std::copy_backward(values_.begin() + dim, values_.begin() + size_, values_.begin() + size_ + 1);
  values_[static_cast<std::size_t>(dim)] = value;
  ++size_;
}

void DimList::erase(int dim) {
  std::copy(values_.begin() + dim + 1, values_.begin() + size_, values_.begin() + dim);
  --size_;
}

bool operator==(const DimList& a, const DimList& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace detail

Shape::Shape(std::initializer_list<std::int64_t> sizes)
    : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const std::int64_t> sizes) : DimList(sizes) {
  check_sizes("shape", *this);
}

std::int64_t Shape::numel() const {
  std::int64_t count = 1;
  for (const std::int64_t size : *this) {
    count *= size;
  }
  return count;
}

Strides::Strides(std::initializer_list<std::int64_t> strides)
    : DimList(std::span<const std::int64_t>(strides.begin(), strides.size())) {}

Strides Strides::contiguous(const Shape& shape) {
  Strides strides;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    strides.push_back(1);
  }
  for (int dim = shape.dims() - 2; dim >= 0; --dim) {
    strides[dim] = strides[dim + 1] * std::max<std::int64_t>(shape[dim + 1], 1);
  }
  return strides;
}

int normalize_dim(const char* op, int dim, int dims) {
  check<ShapeError>(-dims <= dim && dim < dims, "{}: dim must be in [{}, {}), got {}", op, -dims,
                    dims, dim);
  return dim < 0 ? dim + dims : dim;
}

void check_sizes(const char* op, const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    check<ShapeError>(size >= 0, "{}: sizes must not be negative, got {}", op, shape);
    // A size of 0 must not hide an overflow in the others: strides are computed from all.
    check<ShapeError>(!__builtin_mul_overflow(count, std::max<std::int64_t>(size, 1), &count),
                      "{}: the number of elements of {} overflows 64 bits", op, shape);
  }
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.dims() >= b.dims() ? a : b;
  const Shape& shorter = a.dims() >= b.dims() ? b : a;
  Shape out = longer;
  const int offset = longer.dims() - shorter.dims();
  for (int dim = 0; dim < shorter.dims(); ++dim) {
    std::int64_t& size = out[dim + offset];
    if (size == 1) {
      size = shorter[dim];
    } else {
      check<ShapeError>(shorter[dim] == 1 || shorter[dim] == size,
                        "{}: shapes {} and {} do not broadcast", op, a, b);
    }
  }
  check_sizes(op, out);
  return out;
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  std::int64_t expected = 1;
  for (int dim = shape.dims() - 1; dim >= 0; --dim) {
    if (shape[dim] == 0) {
      return true;
    }
    if (shape[dim] != 1 && strides[dim] != expected) {
      return false;
    }
    expected *= shape[dim];
  }
  return true;
}

}  // namespace fsdptrain

fmt::format_context::iterator fmt::formatter<fsdptrain::detail::DimList>::format(
    const fsdptrain::detail::DimList& list, format_context& context) const {
  auto out = fmt::format_to(context.out(), "[");
  for (int dim = 0; dim < list.size(); ++dim) {
    out = fmt::format_to(out, "{}{}", dim == 0 ? "" : ", ", list[dim]);
  }
  return fmt::format_to(out, "]");
}
