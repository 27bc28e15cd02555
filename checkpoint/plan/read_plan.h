#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/format/layout/box_grid.h"
#include "checkpoint/format/layout/layout.h"
#include "checkpoint/plan/row_map.h"

// Which saved pieces have what a reader wants: pure arithmetic, without a loop over files or over
// tensors.
namespace fsdptrain::checkpoint {

// Elements [begin, end) of a tensor, row-major.
WantedPart wanted_range(const Shape& shape, kernels::Range elements);

// A saved piece with something wanted in it.
struct ReadPiece {
  // Of a tensor that is saved by its offset, the box is the whole tensor.
  SavedPiece saved;
  // From the first wanted element to behind the last, counted from the piece's first.
  kernels::Range span;
};

struct ReadPlan {
  // In the order of files for a tensor that is saved by its offset, else in that of its pieces. All
  // wanted elements, each once.
  std::vector<ReadPiece> pieces;
  // Steps that planning took.
  std::int64_t num_operations = 0;
};

// The name of the piece in its file.
std::string read_piece_name(const std::string& plane, const SavedTensor& tensor,
                            const ReadPiece& piece);

// What to copy: runs of elements of the piece, of which only those of its span are touched.
std::vector<Run> runs_of(const ReadPiece& piece, const WantedPart& wanted);

// Threads may plan at the same time.
class ReadPlanner {
 public:
  // The layout has passed check_layout() and outlives the planner.
  explicit ReadPlanner(const SavedLayout& layout);

  // ShapeError for what does not lie in the tensor. `tensor` is an index into the layout's.
  ReadPlan plan(std::size_t tensor, const WantedPart& wanted) const;

 private:
  const SavedLayout& layout_;
  // Of the tensors that are saved in boxes, by index.
  std::map<std::size_t, BoxGrid> grids_;
};

}  // namespace fsdptrain::checkpoint
