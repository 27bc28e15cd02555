#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/load/reader.h"

namespace fsdptrain::checkpoint {

// One plane of one tensor, a few megabytes at a time.
class Parts {
 public:
  // How many elements a part has that is not the last.
  static constexpr std::int64_t kElements = std::int64_t{1} << 20;

  // The reader and its manifest's tensor outlive it.
  Parts(CheckpointReader& reader, const SavedTensor& tensor, SavedPlane plane);

  // At most kElements of them; valid until the next call.
  std::span<const std::byte> read(const kernels::Range& elements);

 private:
  CheckpointReader& reader_;
  const SavedTensor& tensor_;
  SavedPlane plane_;
  std::vector<std::byte> bytes_;
};

}  // namespace fsdptrain::checkpoint
