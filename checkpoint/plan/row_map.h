#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/format/layout/layout.h"

namespace fsdptrain::checkpoint {

// Elements [in_box.begin, in_box.end) of a box of a tensor, row-major: what a reader wants.
struct WantedPart {
  Box box;
  kernels::Range in_box;

  friend bool operator==(const WantedPart&, const WantedPart&) = default;
};

// Elements that follow each other both where they are and where they shall be.
struct Run {
  // Elements from the first one of a saved piece, and of the wanted part.
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t count = 0;

  friend bool operator==(const Run&, const Run&) = default;
};

// Where the elements that two boxes of a tensor share lie in each: rows of equal length that are
// contiguous in both, as long as can be. Row by row, elements come in the order of either box.
// Places are found by bisection, of which each step adds to `operations`, which outlives it.
class RowMap {
 public:
  RowMap(const Box& saved, const WantedPart& wanted, std::int64_t& operations);

  // The first wanted element of the saved box that is not before `begin`.
  std::optional<std::int64_t> first_from(std::int64_t begin) const;
  // Behind the last wanted one that is before `end`.
  std::optional<std::int64_t> last_from(std::int64_t end) const;
  // Those of [begin, end) of the saved box; Run::from counts from `begin`.
  std::vector<Run> runs(kernels::Range saved) const;

 private:
  struct Row {
    std::int64_t from = 0;
    std::int64_t to = 0;
  };

  Row row(std::int64_t index) const;
  // Of its elements in the saved box: wanted ones in [begin, end). May be empty.
  kernels::Range wanted_in(const Row& row, kernels::Range saved) const;
  // The first row that ends behind `from` in the saved box and behind the wanted begin.
  std::int64_t first_row(std::int64_t from) const;

  kernels::Range wanted_;
  std::int64_t num_rows_ = 1;
  std::int64_t row_size_ = 1;
  // By outer dimension, the last one first: how often, and how far apart.
  struct Step {
    std::int64_t count = 1;
    std::int64_t from = 0;
    std::int64_t to = 0;
  };
  std::vector<Step> steps_;
  Row first_;
  std::int64_t& operations_;
};

}  // namespace fsdptrain::checkpoint
