#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/format/layout/layout.h"

// The pieces of a tensor that is saved in boxes, found by place.
namespace fsdptrain::checkpoint {

class BoxGrid {
 public:
  // The tensor's pieces must be as SavedTensor says: DataError naming `source`, tensor and piece.
  // The tensor outlives the grid.
  BoxGrid(const std::string& source, const SavedTensor& tensor);

  // Where the tensor is cut in this dimension, 0 and its size included.
  const std::vector<std::int64_t>& cuts(std::size_t dim) const { return cuts_[dim]; }
  std::size_t num_cells() const { return first_piece_.size() - 1; }
  // Cells are counted row-major; pieces [first, last) of the tensor have the cell.
  std::size_t first_piece(std::size_t cell) const { return first_piece_[cell]; }
  std::size_t last_piece(std::size_t cell) const { return first_piece_[cell + 1]; }

 private:
  void check_piece(const std::string& source, const SavedTensor& tensor,
                   const SavedPiece& piece) const;
  std::size_t cell_of(const std::string& source, const SavedTensor& tensor,
                      const SavedPiece& piece) const;

  std::vector<std::vector<std::int64_t>> cuts_;  // by dimension
  std::vector<std::size_t> first_piece_;         // by cell, and the end
};

}  // namespace fsdptrain::checkpoint
