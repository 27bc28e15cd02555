#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/format/layout/layout.h"
#include "checkpoint/plan/row_map.h"
#include "runtime/base/random.h"

// Saved tensors of many forms, for tests of the planner.
namespace fsdptrain::testing {

// Integers one after the other, from a seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  // low to high, both included.
  std::int64_t next(std::int64_t low, std::int64_t high) {
    const auto span = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<std::int64_t>(philox(count_++, 0, seed_).word[0] % span);
  }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

inline Shape random_shape(Draws& draws) {
  Shape shape;
  const std::int64_t num_dims = draws.next(0, 4);
  for (std::int64_t dim = 0; dim < num_dims; ++dim) {
    shape.push_back(draws.next(1, 7));
  }
  return shape;
}

// 0, the size, and some places between.
inline std::vector<std::int64_t> random_cuts(Draws& draws, std::int64_t size) {
  std::vector<std::int64_t> cuts = {0};
  while (cuts.back() < size) {
    cuts.push_back(draws.next(cuts.back() + 1, size));
  }
  return cuts;
}

// A tensor in boxes: a random grid, each cell in random ranges, in random files.
inline checkpoint::SavedTensor boxed_tensor(Draws& draws, std::string name, const Shape& shape,
                                            std::int64_t num_files) {
  checkpoint::SavedTensor tensor{
      .name = std::move(name), .shape = shape, .group = 0, .offset = 0, .pieces = {}, .step = {}};
  std::vector<checkpoint::Box> cells = {{}};
  for (const std::int64_t size : shape) {
    const std::vector<std::int64_t> cuts = random_cuts(draws, size);
    std::vector<checkpoint::Box> more;
    for (const checkpoint::Box& cell : cells) {
      for (std::size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
        more.push_back(cell);
        more.back().offset.push_back(cuts[cut]);
        more.back().size.push_back(cuts[cut + 1] - cuts[cut]);
      }
    }
    cells = more;
  }
  for (const checkpoint::Box& cell : cells) {
    const std::vector<std::int64_t> cuts = random_cuts(draws, cell.numel());
    for (std::size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
      tensor.pieces.push_back({.file = draws.next(0, num_files - 1),
                               .box = cell,
                               .in_box = {.begin = cuts[cut], .end = cuts[cut + 1]}});
    }
  }
  return tensor;
}

inline checkpoint::WantedPart random_part(Draws& draws, const Shape& shape) {
  checkpoint::WantedPart part;
  for (const std::int64_t size : shape) {
    const bool is_whole = draws.next(0, 2) == 0;
    const std::int64_t begin = is_whole ? 0 : draws.next(0, size - 1);
    part.box.offset.push_back(begin);
    part.box.size.push_back(is_whole ? size : draws.next(1, size - begin));
  }
  const std::int64_t numel = part.box.numel();
  const bool is_whole = draws.next(0, 2) == 0;
  part.in_box.begin = is_whole ? 0 : draws.next(0, numel);
  part.in_box.end = is_whole ? numel : draws.next(part.in_box.begin, numel);
  return part;
}

// Of element `index` of a box, row-major: its index in the tensor. One element at a time, by
// coordinates: the oracle of all that is faster.
inline std::int64_t index_in_tensor(const Shape& shape, const checkpoint::Box& box,
                                    std::int64_t index) {
  std::int64_t in_tensor = 0;
  std::int64_t stride = 1;
  for (std::size_t dim = box.size.size(); dim-- > 0;) {
    in_tensor += (box.offset[dim] + index % box.size[dim]) * stride;
    index /= box.size[dim];
    stride *= shape[static_cast<int>(dim)];
  }
  return in_tensor;
}

}  // namespace fsdptrain::testing
