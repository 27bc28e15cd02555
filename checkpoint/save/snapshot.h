#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/plan/layout_index.h"
#include "checkpoint/state/training_state.h"

// The values of one rank's file.
namespace fsdptrain::checkpoint {

// What of this rank's memory each piece is: one dimension, in the order of the pieces.
std::vector<Tensor> windows_of(const StateTensors& tensors, std::span<const HeldPiece> pieces);

// Host memory that values are copied to so that training goes on while they are written. Allocated
// and touched at once, since the first touch of memory takes longer than the copy. The caller lets
// nobody read it while it copies.
class StagingMemory {
 public:
  // For windows like these.
  explicit StagingMemory(std::span<const Tensor> windows);
  static std::int64_t nbytes_for(std::span<const Tensor> windows);

  // Returns when the copies are there; the host waits for a GPU. Memory is allocated anew where
  // these need another amount.
  std::vector<std::span<const std::byte>> copy(std::span<const Tensor> windows);
  std::int64_t nbytes() const { return bytes_.numel(); }

 private:
  void allocate(std::span<const Tensor> windows);

  Tensor bytes_;
};

}  // namespace fsdptrain::checkpoint
