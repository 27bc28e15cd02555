#include "checkpoint/format/layout/layout.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fsdptrain::checkpoint {
namespace {

std::string whole_name(const std::string& plane, const SavedTensor& tensor) {
  return plane + "/" + tensor.name;
}

// Adds to each file what it has of elements [begin, end) of a buffer. `change` has the difference
// to the file before, for the files between the first and the last: no loop over files.
void add_range(std::int64_t begin, std::int64_t end, std::int64_t part, std::uint64_t nbytes,
               std::vector<std::uint64_t>& files, std::vector<std::uint64_t>& change) {
  const auto first = static_cast<std::size_t>(begin / part);
  const auto last = static_cast<std::size_t>((end - 1) / part);
  if (first == last) {
    files[first] += static_cast<std::uint64_t>(end - begin) * nbytes;
    return;
  }
  const auto begin_of = [part](std::size_t file) { return static_cast<std::int64_t>(file) * part; };
  files[first] += static_cast<std::uint64_t>(begin_of(first + 1) - begin) * nbytes;
  files[last] += static_cast<std::uint64_t>(end - begin_of(last)) * nbytes;
  change[first + 1] += static_cast<std::uint64_t>(part) * nbytes;
  change[last] -= static_cast<std::uint64_t>(part) * nbytes;
}

}  // namespace

std::int64_t Box::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : size) {
    product *= extent;
  }
  return product;
}

const SavedGroup& group_of(const SavedLayout& layout, const SavedTensor& tensor) {
  return layout.groups[static_cast<std::size_t>(tensor.group)];
}

const SavedPlane* find_plane(const SavedGroup& group, std::string_view name) {
  const auto found = std::ranges::find(group.planes, name, &SavedPlane::name);
  return found == group.planes.end() ? nullptr : &*found;
}

std::string piece_name(const std::string& plane, const SavedTensor& tensor, std::int64_t begin,
                       std::int64_t end) {
  const std::string name = whole_name(plane, tensor);
  return begin == 0 && end == tensor.shape.numel() ? name : fmt::format("{}@{}", name, begin);
}

std::string piece_name(const std::string& plane, const SavedTensor& tensor,
                       const SavedPiece& piece) {
  std::string name = whole_name(plane, tensor);
  if (piece.in_box.size() == tensor.shape.numel()) {
    return name;
  }
  return fmt::format("{}@{}:{}", name, fmt::join(piece.box.offset, ","), piece.in_box.begin);
}

std::uint64_t element_nbytes(const SavedGroup& group) {
  std::uint64_t nbytes = 0;
  for (const SavedPlane& plane : group.planes) {
    nbytes += size_of(plane.dtype);
  }
  return nbytes;
}

std::vector<std::uint64_t> data_nbytes_of_files(const SavedLayout& layout, std::int64_t num_files) {
  std::vector<std::uint64_t> files(static_cast<std::size_t>(num_files));
  std::vector<std::uint64_t> change(files.size() + 1);
  for (const SavedTensor& tensor : layout.tensors) {
    const SavedGroup& group = group_of(layout, tensor);
    const std::uint64_t nbytes = element_nbytes(group);
    for (const SavedPiece& piece : tensor.pieces) {
      files[static_cast<std::size_t>(piece.file)] +=
          static_cast<std::uint64_t>(piece.in_box.size()) * nbytes;
    }
    if (tensor.pieces.empty() && tensor.shape.numel() > 0) {
      add_range(tensor.offset, tensor.offset + tensor.shape.numel(), group.part, nbytes, files,
                change);
    }
  }
  std::uint64_t between = 0;
  for (std::size_t file = 0; file < files.size(); ++file) {
    between += change[file];
    files[file] += between;
  }
  return files;
}

}  // namespace fsdptrain::checkpoint
