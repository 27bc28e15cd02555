#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/load/reader.h"

// What two checkpoints have in common and what not, whatever numbers of ranks saved them.
namespace fsdptrain::checkpoint {

// One plane of a tensor that both have, with one shape and dtype.
struct Common {
  // Of each manifest, which outlives this.
  const SavedTensor* in_a = nullptr;
  const SavedTensor* in_b = nullptr;
  SavedPlane plane;
};
struct Comparable {
  std::vector<Common> common;
  // One line for each tensor or plane that one of them lacks, or has in another shape or dtype,
  // each object that is another, and each tensor that was updated another number of times.
  std::vector<std::string> differences;
};
Comparable match(const Manifest& a, const Manifest& b);

struct ValueDifference {
  // "<plane>/<tensor>"
  std::string name;
  std::int64_t numel = 0;
  // Elements whose bits differ.
  std::int64_t num_different = 0;
  // The largest |a - b| of these; not finite where one of them is not.
  double max_difference = 0;
  // The largest |a| of all.
  double max_value = 0;
};
// Holds a few megabytes of each. `each` gets the bytes that were read of both.
ValueDifference compare_values(CheckpointReader& a, CheckpointReader& b, const Common& common,
                               const std::function<void(std::uint64_t nbytes)>& each);

}  // namespace fsdptrain::checkpoint
