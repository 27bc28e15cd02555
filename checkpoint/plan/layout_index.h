#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/format/layout/layout.h"
#include "checkpoint/safetensors/layout.h"

namespace fsdptrain::checkpoint {

// What one file has of one plane of a tensor.
struct HeldPiece {
  // Indices into the layout's groups and tensors, and into the group's planes.
  std::size_t group = 0;
  std::size_t plane = 0;
  std::size_t tensor = 0;
  // Of the tensor, or of the box of `piece`.
  kernels::Range elements;
  // Null for a tensor that is saved by its offset.
  const SavedPiece* piece = nullptr;
};

// The tensors of a layout by the files that have them: sorted once, then asked for any file without
// a loop over the tensors. Threads may ask at the same time.
class LayoutIndex {
 public:
  // The layout has passed check_layout() and outlives the index.
  explicit LayoutIndex(const SavedLayout& layout);

  // In the order of the file: by group, then plane, then offset; pieces of boxes behind those.
  std::vector<HeldPiece> pieces_of(std::int64_t file) const;
  // The same as the file's tensors.
  std::vector<TensorSpec> specs_of(const std::vector<HeldPiece>& pieces) const;

 private:
  struct Boxed {
    std::int64_t file = 0;
    std::size_t tensor = 0;
    const SavedPiece* piece = nullptr;
  };
  void add_flat(std::vector<HeldPiece>& pieces, std::size_t group, std::int64_t file) const;
  void add_boxed(std::vector<HeldPiece>& pieces, std::size_t group, std::int64_t file) const;

  const SavedLayout& layout_;
  // By group: tensors with elements, by their offset; and pieces, by their file.
  std::vector<std::vector<std::size_t>> flat_;
  std::vector<std::vector<Boxed>> boxed_;
};

}  // namespace fsdptrain::checkpoint
