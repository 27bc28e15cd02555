#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <fmt/core.h>
#include <initializer_list>
#include <span>

// Sizes and strides of tensors: two types, so that they do not mix. Dimensions are counted from
// the left; a negative dim counts from the right (-1 is the last).
namespace fsdptrain {

inline constexpr int kMaxDims = 8;

namespace detail {

// A short list of 64-bit integers without heap memory.
class DimList {
 public:
  DimList() = default;
  explicit DimList(std::span<const std::int64_t> values);

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t operator[](int dim) const { return values_[static_cast<std::size_t>(dim)]; }
  std::int64_t& operator[](int dim) { return values_[static_cast<std::size_t>(dim)]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + size_; }
  void push_back(std::int64_t value);
  void insert(int dim, std::int64_t value);
  void erase(int dim);

  friend bool operator==(const DimList& a, const DimList& b);

 private:
  std::array<std::int64_t, kMaxDims> values_{};
  int size_ = 0;
};

}  // namespace detail

// The sizes of a tensor; none is negative and their product fits std::int64_t.
class Shape : public detail::DimList {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);
  explicit Shape(std::span<const std::int64_t> sizes);

  // The number of dimensions.
  int dims() const { return size(); }
  std::int64_t numel() const;
  std::int64_t back() const { return (*this)[dims() - 1]; }

  friend bool operator==(const Shape& a, const Shape& b) {
    return static_cast<const DimList&>(a) == static_cast<const DimList&>(b);
  }
};

// Elements between neighbours along each dimension; 0 repeats one element.
class Strides : public detail::DimList {
 public:
  Strides() = default;
  Strides(std::initializer_list<std::int64_t> strides);

  // Row-major strides without gaps.
  static Strides contiguous(const Shape& shape);

  friend bool operator==(const Strides& a, const Strides& b) {
    return static_cast<const DimList&>(a) == static_cast<const DimList&>(b);
  }
};

// `dim` counted from the left; ShapeError naming `op` if the shape has no such dimension.
int normalize_dim(const char* op, int dim, int dims);

// Throws ShapeError naming `op` on a negative size or a product above 2^63 - 1.
void check_sizes(const char* op, const Shape& shape);

// The common shape of two operands by NumPy's rule; ShapeError naming `op` if there is none.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

bool is_contiguous(const Shape& shape, const Strides& strides);

}  // namespace fsdptrain

template <>
struct fmt::formatter<fsdptrain::detail::DimList> {
  constexpr auto parse(format_parse_context& context) const { return context.begin(); }
  format_context::iterator format(const fsdptrain::detail::DimList& list,
                                  format_context& context) const;
};
template <>
struct fmt::formatter<fsdptrain::Shape> : fmt::formatter<fsdptrain::detail::DimList> {};
template <>
struct fmt::formatter<fsdptrain::Strides> : fmt::formatter<fsdptrain::detail::DimList> {};
