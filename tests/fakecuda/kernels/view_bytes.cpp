#include "tests/fakecuda/kernels/view_bytes.h"

#include <algorithm>
#include <cstddef>

namespace fsdptrain::fakecuda {
namespace {

struct Dimension {
  std::int64_t size;
  std::int64_t stride;
};

// Those that make a difference, by stride, neighbours in memory merged; the first one is dense.
std::vector<Dimension> dimensions_of(const View& view) {
  std::vector<Dimension> sorted;
  for (int dim = 0; dim < view.dims; ++dim) {
    if (view.sizes[dim] != 1 && view.strides[dim] != 0) {
      sorted.push_back({view.sizes[dim], view.strides[dim]});
    }
  }
  std::ranges::stable_sort(sorted, {}, &Dimension::stride);
  std::vector<Dimension> merged{{1, 1}};
  for (const Dimension& dim : sorted) {
    Dimension& last = merged.back();
    if (dim.stride == last.size * last.stride) {
      last.size *= dim.size;
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

bool is_empty(const View& view) {
  return std::any_of(view.sizes, view.sizes + view.dims,
                     [](std::int64_t size) { return size == 0; });
}

void add_view(std::vector<Range>& ranges, const View& view) {
  if (is_empty(view)) {
    return;
  }
  const std::vector<Dimension> dims = dimensions_of(view);
  const auto element = static_cast<std::int64_t>(size_of(view.dtype));
  std::int64_t rows = 1;
  for (std::size_t dim = 1; dim < dims.size(); ++dim) {
    rows *= dims[dim].size;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t rest = row;
    std::int64_t offset = 0;
    for (std::size_t dim = 1; dim < dims.size(); ++dim) {
      offset += rest % dims[dim].size * dims[dim].stride;
      rest /= dims[dim].size;
    }
    ranges.push_back({static_cast<const std::byte*>(view.data) + offset * element,
                      static_cast<std::size_t>(dims[0].size * element)});
  }
}

}  // namespace

std::vector<Range> bytes_of(std::initializer_list<kernels::Operand> operands) {
  std::vector<Range> ranges;
  for (const kernels::Operand& operand : operands) {
    if (operand.view == nullptr) {
      continue;
    }
    if (operand.is_whole) {
      add_view(ranges, *operand.view);
      continue;
    }
    const std::size_t element = size_of(operand.view->dtype);
    for (const kernels::Range& part : operand.ranges) {
      ranges.push_back({static_cast<const std::byte*>(operand.view->data) +
                            static_cast<std::size_t>(part.begin) * element,
                        static_cast<std::size_t>(part.end - part.begin) * element});
    }
  }
  return ranges;
}

}  // namespace fsdptrain::fakecuda
