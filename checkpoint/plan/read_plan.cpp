#include "checkpoint/plan/read_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

Box whole_box(const Shape& shape) {
  return {.offset = std::vector<std::int64_t>(static_cast<std::size_t>(shape.dims())),
          .size = {shape.begin(), shape.end()}};
}

void check_wanted(const SavedTensor& tensor, const WantedPart& wanted) {
  const auto num_dims = static_cast<std::size_t>(tensor.shape.dims());
  bool is_inside = wanted.box.offset.size() == num_dims && wanted.box.size.size() == num_dims;
  for (std::size_t dim = 0; is_inside && dim < num_dims; ++dim) {
    const std::int64_t size = tensor.shape[static_cast<int>(dim)];
    is_inside = wanted.box.offset[dim] >= 0 && wanted.box.offset[dim] <= size &&
                wanted.box.size[dim] >= 0 && wanted.box.size[dim] <= size - wanted.box.offset[dim];
  }
  check<ShapeError>(
      is_inside && wanted.in_box.begin >= 0 && wanted.in_box.size() >= 0 &&
          wanted.in_box.end <= wanted.box.numel(),
      "tensor {} of shape {}: the box at [{}] of size [{}], elements {} to {}, is not "
      "inside it",
      shown(tensor.name), tensor.shape, fmt::join(wanted.box.offset, ", "),
      fmt::join(wanted.box.size, ", "), wanted.in_box.begin, wanted.in_box.end);
}

// The smallest box with all that is wanted, as its begins and ends: narrower than the wanted box in
// the outermost dimension of which more than one index is wanted, and in those around it.
std::vector<kernels::Range> bounds_of(const WantedPart& wanted) {
  std::vector<kernels::Range> bounds;
  std::int64_t stride = wanted.box.numel();
  std::int64_t first = wanted.in_box.begin;
  std::int64_t last = wanted.in_box.end - 1;
  for (std::size_t dim = 0; dim < wanted.box.size.size(); ++dim) {
    const std::int64_t offset = wanted.box.offset[dim];
    stride /= wanted.box.size[dim];
    bounds.push_back({offset + first / stride, offset + last / stride + 1});
    if (first / stride == last / stride) {
      first %= stride;
      last %= stride;
    } else {
      first = 0;
      last = stride - 1;
    }
  }
  return bounds;
}

// Adds the pieces of one saved box with something wanted in them. `piece_at` gives the one that has
// an element of the box.
template <class PieceAt>
void add_pieces(ReadPlan& plan, const Box& saved, const WantedPart& wanted,
                const PieceAt& piece_at) {
  const RowMap rows(saved, wanted, plan.num_operations);
  std::optional<std::int64_t> next = rows.first_from(0);
  while (next) {
    ++plan.num_operations;
    SavedPiece piece = piece_at(*next);
    const kernels::Range range = piece.in_box;
    // There is one: the piece was found by it.
    const std::int64_t end = *rows.last_from(range.end);
    plan.pieces.push_back(
        {.saved = std::move(piece), .span = {*next - range.begin, end - range.begin}});
    next = rows.first_from(range.end);
  }
}

void plan_by_offset(ReadPlan& plan, const SavedTensor& tensor, std::int64_t part,
                    const WantedPart& wanted) {
  const Box whole = whole_box(tensor.shape);
  add_pieces(plan, whole, wanted, [&](std::int64_t element) {
    const std::int64_t file = (tensor.offset + element) / part;
    const std::int64_t begin = file * part - tensor.offset;
    return SavedPiece{
        .file = file,
        .box = whole,
        .in_box = {std::max<std::int64_t>(begin, 0), std::min(begin + part, tensor.shape.numel())}};
  });
}

// The cells [begin, end) of a dimension that have indices of `bounds`.
std::pair<std::size_t, std::size_t> cells_with(const std::vector<std::int64_t>& cuts,
                                               kernels::Range bounds, std::int64_t& operations) {
  std::size_t low = 0;
  std::size_t high = cuts.size() - 1;
  while (high - low > 1) {
    ++operations;
    const std::size_t middle = low + (high - low) / 2;
    (cuts[middle] <= bounds.begin ? low : high) = middle;
  }
  std::size_t end = low;
  for (; end + 1 < cuts.size() && cuts[end] < bounds.end; ++end) {
    ++operations;
  }
  return {low, end};
}

void add_cell(ReadPlan& plan, const SavedTensor& tensor, const BoxGrid& grid, std::size_t cell,
              const WantedPart& wanted) {
  const auto first = tensor.pieces.begin() + static_cast<std::ptrdiff_t>(grid.first_piece(cell));
  const auto last = tensor.pieces.begin() + static_cast<std::ptrdiff_t>(grid.last_piece(cell));
  add_pieces(plan, first->box, wanted, [&](std::int64_t element) {
    return *std::partition_point(first, last, [&](const SavedPiece& piece) {
      ++plan.num_operations;
      return piece.in_box.end <= element;
    });
  });
}

void plan_by_grid(ReadPlan& plan, const SavedTensor& tensor, const BoxGrid& grid,
                  const WantedPart& wanted) {
  const std::vector<kernels::Range> bounds = bounds_of(wanted);
  std::vector<std::pair<std::size_t, std::size_t>> cells;
  cells.reserve(bounds.size());
  for (std::size_t dim = 0; dim < bounds.size(); ++dim) {
    cells.push_back(cells_with(grid.cuts(dim), bounds[dim], plan.num_operations));
  }
  std::vector<std::size_t> at;
  at.reserve(cells.size());
  for (const auto& [begin, end] : cells) {
    at.push_back(begin);
  }
  for (bool is_inside = true; is_inside;) {
    std::size_t cell = 0;
    for (std::size_t dim = 0; dim < at.size(); ++dim) {
      cell = cell * (grid.cuts(dim).size() - 1) + at[dim];
    }
    add_cell(plan, tensor, grid, cell, wanted);
    // The next cell, row-major.
    is_inside = false;
    for (std::size_t dim = at.size(); dim-- > 0 && !is_inside;) {
      is_inside = ++at[dim] < cells[dim].second;
      if (!is_inside) {
        at[dim] = cells[dim].first;
      }
    }
  }
}

}  // namespace

WantedPart wanted_range(const Shape& shape, kernels::Range elements) {
  return {.box = whole_box(shape), .in_box = elements};
}

std::string read_piece_name(const std::string& plane, const SavedTensor& tensor,
                            const ReadPiece& piece) {
  return tensor.pieces.empty()
             ? piece_name(plane, tensor, piece.saved.in_box.begin, piece.saved.in_box.end)
             : piece_name(plane, tensor, piece.saved);
}

std::vector<Run> runs_of(const ReadPiece& piece, const WantedPart& wanted) {
  std::int64_t operations = 0;
  return RowMap(piece.saved.box, wanted, operations).runs(piece.saved.in_box);
}

ReadPlanner::ReadPlanner(const SavedLayout& layout) : layout_(layout) {
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    if (!layout.tensors[i].pieces.empty()) {
      grids_.emplace(i, BoxGrid("the layout to be read", layout.tensors[i]));
    }
  }
}

ReadPlan ReadPlanner::plan(std::size_t tensor, const WantedPart& wanted) const {
  const SavedTensor& saved = layout_.tensors.at(tensor);
  check_wanted(saved, wanted);
  ReadPlan plan;
  if (wanted.in_box.size() == 0) {
    return plan;
  }
  const auto grid = grids_.find(tensor);
  if (grid == grids_.end()) {
    plan_by_offset(plan, saved, layout_.groups[static_cast<std::size_t>(saved.group)].part, wanted);
  } else {
    plan_by_grid(plan, saved, grid->second, wanted);
  }
  return plan;
}

}  // namespace fsdptrain::checkpoint
