#include "checkpoint/plan/layout_index.h"

#include <algorithm>

namespace fsdptrain::checkpoint {

LayoutIndex::LayoutIndex(const SavedLayout& layout)
    : layout_(layout), flat_(layout.groups.size()), boxed_(layout.groups.size()) {
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const SavedTensor& tensor = layout.tensors[i];
    const auto group = static_cast<std::size_t>(tensor.group);
    if (tensor.pieces.empty() && tensor.shape.numel() > 0) {
      flat_[group].push_back(i);
    }
    for (const SavedPiece& piece : tensor.pieces) {
      boxed_[group].push_back({.file = piece.file, .tensor = i, .piece = &piece});
    }
  }
  for (std::vector<std::size_t>& tensors : flat_) {
    std::ranges::sort(tensors, {}, [&](std::size_t i) { return layout.tensors[i].offset; });
  }
  for (std::vector<Boxed>& pieces : boxed_) {
    std::ranges::stable_sort(pieces, {}, &Boxed::file);
  }
}

std::vector<HeldPiece> LayoutIndex::pieces_of(std::int64_t file) const {
  std::vector<HeldPiece> pieces;
  for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
    const std::size_t begin = pieces.size();
    add_flat(pieces, group, file);
    add_boxed(pieces, group, file);
    // The same for each plane that follows.
    const std::size_t count = pieces.size() - begin;
    for (std::size_t plane = 1; plane < layout_.groups[group].planes.size(); ++plane) {
      for (std::size_t i = 0; i < count; ++i) {
        HeldPiece piece = pieces[begin + i];
        piece.plane = plane;
        pieces.push_back(piece);
      }
    }
  }
  return pieces;
}

void LayoutIndex::add_flat(std::vector<HeldPiece>& pieces, std::size_t group,
                           std::int64_t file) const {
  const std::int64_t part = layout_.groups[group].part;
  const kernels::Range held = {file * part, (file + 1) * part};
  const auto end_of = [&](std::size_t i) {
    return layout_.tensors[i].offset + layout_.tensors[i].shape.numel();
  };
  auto tensor = std::ranges::upper_bound(flat_[group], held.begin, {}, end_of);
  for (; tensor != flat_[group].end() && layout_.tensors[*tensor].offset < held.end; ++tensor) {
    const std::int64_t offset = layout_.tensors[*tensor].offset;
    pieces.push_back({.group = group,
                      .plane = 0,
                      .tensor = *tensor,
                      .elements = {std::max(held.begin, offset) - offset,
                                   std::min(held.end, end_of(*tensor)) - offset},
                      .piece = nullptr});
  }
}

void LayoutIndex::add_boxed(std::vector<HeldPiece>& pieces, std::size_t group,
                            std::int64_t file) const {
  const auto begin = std::ranges::lower_bound(boxed_[group], file, {}, &Boxed::file);
  for (auto boxed = begin; boxed != boxed_[group].end() && boxed->file == file; ++boxed) {
    pieces.push_back({.group = group,
                      .plane = 0,
                      .tensor = boxed->tensor,
                      .elements = boxed->piece->in_box,
                      .piece = boxed->piece});
  }
}

std::vector<TensorSpec> LayoutIndex::specs_of(const std::vector<HeldPiece>& pieces) const {
  std::vector<TensorSpec> specs;
  specs.reserve(pieces.size());
  for (const HeldPiece& held : pieces) {
    const SavedPlane& plane = layout_.groups[held.group].planes[held.plane];
    const SavedTensor& tensor = layout_.tensors[held.tensor];
    const bool is_whole = held.elements.size() == tensor.shape.numel();
    specs.push_back(
        {.name = held.piece == nullptr
                     ? piece_name(plane.name, tensor, held.elements.begin, held.elements.end)
                     : piece_name(plane.name, tensor, *held.piece),
         .dtype = plane.dtype,
         .shape = is_whole ? tensor.shape : Shape{held.elements.size()}});
  }
  return specs;
}

}  // namespace fsdptrain::checkpoint
