#include "checkpoint/format/layout/box_grid.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

std::string describe(const SavedPiece& piece) {
  return fmt::format("box at [{}] of size [{}], elements {} to {}",
                     fmt::join(piece.box.offset, ", "), fmt::join(piece.box.size, ", "),
                     piece.in_box.begin, piece.in_box.end);
}

}  // namespace

BoxGrid::BoxGrid(const std::string& source, const SavedTensor& tensor) {
  const auto num_dims = static_cast<std::size_t>(tensor.shape.dims());
  cuts_.resize(num_dims);
  for (const SavedPiece& piece : tensor.pieces) {
    check_piece(source, tensor, piece);
    for (std::size_t dim = 0; dim < num_dims; ++dim) {
      cuts_[dim].push_back(piece.box.offset[dim]);
    }
  }
  std::size_t num_cells = 1;
  for (std::size_t dim = 0; dim < num_dims; ++dim) {
    std::vector<std::int64_t>& cuts = cuts_[dim];
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    check<DataError>(cuts.front() == 0 &&
                         !__builtin_mul_overflow(num_cells, cuts.size(), &num_cells) &&
                         num_cells <= tensor.pieces.size(),
                     "{}: tensor {}: its {} pieces are no grid that covers it", source,
                     shown(tensor.name), tensor.pieces.size());
    cuts.push_back(tensor.shape[static_cast<int>(dim)]);
  }
  std::size_t cell = 0;
  std::int64_t covered = 0;
  first_piece_.push_back(0);
  for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
    const SavedPiece& piece = tensor.pieces[i];
    if (cell == num_cells || cell_of(source, tensor, piece) != cell ||
        piece.in_box.begin != covered) {
      fail<DataError>(
          "{}: tensor {}: the {} does not follow on the one before it: a gap, an overlap or no "
          "order",
          source, shown(tensor.name), describe(piece));
    }
    covered = piece.in_box.end;
    if (covered == piece.box.numel()) {
      first_piece_.push_back(i + 1);
      covered = 0;
      ++cell;
    }
  }
  check<DataError>(cell == num_cells && covered == 0,
                   "{}: tensor {}: its pieces do not cover it: {} of {} boxes are whole", source,
                   shown(tensor.name), cell, num_cells);
}

void BoxGrid::check_piece(const std::string& source, const SavedTensor& tensor,
                          const SavedPiece& piece) const {
  const auto num_dims = static_cast<std::size_t>(tensor.shape.dims());
  bool is_inside = piece.box.offset.size() == num_dims && piece.box.size.size() == num_dims;
  for (std::size_t dim = 0; is_inside && dim < num_dims; ++dim) {
    const std::int64_t size = tensor.shape[static_cast<int>(dim)];
    is_inside = piece.box.offset[dim] >= 0 && piece.box.offset[dim] <= size &&
                piece.box.size[dim] >= 1 && piece.box.size[dim] <= size - piece.box.offset[dim];
  }
  if (!is_inside || piece.in_box.begin < 0 || piece.in_box.begin >= piece.in_box.end ||
      piece.in_box.end > piece.box.numel()) {
    fail<DataError>("{}: tensor {} of shape {}: the {} is not inside it", source,
                    shown(tensor.name), tensor.shape, describe(piece));
  }
}

std::size_t BoxGrid::cell_of(const std::string& source, const SavedTensor& tensor,
                             const SavedPiece& piece) const {
  std::size_t cell = 0;
  for (std::size_t dim = 0; dim < cuts_.size(); ++dim) {
    const std::vector<std::int64_t>& cuts = cuts_[dim];
    const auto cut = std::ranges::lower_bound(cuts, piece.box.offset[dim]);
    if (*(cut + 1) != piece.box.offset[dim] + piece.box.size[dim]) {
      fail<DataError>("{}: tensor {}: the {} is no cell of the grid of its boxes", source,
                      shown(tensor.name), describe(piece));
    }
    cell = cell * (cuts.size() - 1) + static_cast<std::size_t>(cut - cuts.begin());
  }
  return cell;
}

}  // namespace fsdptrain::checkpoint
