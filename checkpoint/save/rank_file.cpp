#include "checkpoint/save/rank_file.h"

#include <algorithm>
#include <fmt/format.h>

namespace fsdptrain::checkpoint {
namespace {

constexpr std::size_t kStretchBytes = std::size_t{8} << 20;

// Tensors of each group, by their offset.
std::vector<std::vector<std::size_t>> tensors_by_group(const SavedLayout& layout) {
  std::vector<std::vector<std::size_t>> by_group(layout.groups.size());
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    by_group[static_cast<std::size_t>(layout.tensors[i].group)].push_back(i);
  }
  for (auto& tensors : by_group) {
    std::ranges::sort(tensors, {}, [&](std::size_t i) { return layout.tensors[i].offset; });
  }
  return by_group;
}

}  // namespace

std::string rank_file_name(std::int64_t file) {
  return fmt::format("rank-{:05}.safetensors", file);
}

std::vector<FilePiece> pieces_of_file(const SavedLayout& layout, std::int64_t file) {
  const auto by_group = tensors_by_group(layout);
  std::vector<FilePiece> pieces;
  for (std::size_t group = 0; group < layout.groups.size(); ++group) {
    const std::int64_t part = layout.groups[group].part;
    const kernels::Range of_file{file * part, (file + 1) * part};
    for (std::size_t plane = 0; plane < layout.groups[group].planes.size(); ++plane) {
      for (const std::size_t i : by_group[group]) {
        const SavedTensor& tensor = layout.tensors[i];
        const kernels::Range in_buffer{std::max(of_file.begin, tensor.offset),
                                       std::min(of_file.end, tensor.offset + tensor.shape.numel())};
        if (in_buffer.size() > 0) {
          pieces.push_back(
              {.group = group,
               .plane = plane,
               .tensor = i,
               .in_tensor = {in_buffer.begin - tensor.offset, in_buffer.end - tensor.offset},
               .in_buffer = in_buffer});
        }
      }
    }
  }
  return pieces;
}

std::vector<TensorSpec> specs_of(const SavedLayout& layout, std::span<const FilePiece> pieces) {
  std::vector<TensorSpec> specs;
  for (const FilePiece& piece : pieces) {
    const SavedPlane& plane = layout.groups[piece.group].planes[piece.plane];
    const SavedTensor& tensor = layout.tensors[piece.tensor];
    const bool is_whole = piece.in_tensor.size() == tensor.shape.numel();
    specs.push_back(
        {.name = piece_name(plane.name, tensor, piece.in_tensor.begin, piece.in_tensor.end),
         .dtype = plane.dtype,
         .shape = is_whole ? tensor.shape : Shape{piece.in_tensor.size()}});
  }
  return specs;
}

FileFacts write_rank_file(FileSystem& files, const RankFile& file,
                          const std::function<void()>& check_goes_on) {
  BlockFileWriter writer(files, file.path, file.metadata, file.specs);
  for (std::span<const std::byte> rest : file.values) {
    while (!rest.empty()) {
      check_goes_on();
      const std::size_t nbytes = std::min(rest.size(), kStretchBytes);
      writer.append(rest.first(nbytes));
      rest = rest.subspan(nbytes);
    }
  }
  check_goes_on();
  return writer.finish();
}

}  // namespace fsdptrain::checkpoint
