#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "checkpoint/format/layout/box_grid.h"
#include "checkpoint/format/layout/layout.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

// Parts of a piece's name are told apart by these.
constexpr std::string_view kSeparators = "/@";

void check_planes(const std::string& source, const SavedGroup& group) {
  std::unordered_set<std::string_view> names;
  for (const SavedPlane& plane : group.planes) {
    check<DataError>(!plane.name.empty() && plane.name.size() <= kMaxNameBytes &&
                         plane.name.find_first_of(kSeparators) == std::string::npos,
                     "{}: group {}: a plane's name has 1 to {} bytes without / and @, got {}",
                     source, shown(group.name), kMaxNameBytes, shown(plane.name));
    check<DataError>(names.insert(plane.name).second, "{}: group {}: it has the plane {} twice",
                     source, shown(group.name), shown(plane.name));
  }
  check<DataError>(names.contains(kParameters), "{}: group {}: it has no plane {}", source,
                   shown(group.name), kParameters);
}

void check_group(const std::string& source, const SavedGroup& group, std::int64_t num_files) {
  check<DataError>(group.name.size() <= kMaxNameBytes,
                   "{}: group {}: a name has at most {} bytes, got {}", source, shown(group.name),
                   kMaxNameBytes, group.name.size());
  check<DataError>(group.part >= 0 && group.part <= kMaxElements / num_files,
                   "{}: group {}: part must be 0 to {}, got {}", source, shown(group.name),
                   kMaxElements / num_files, group.part);
  check<DataError>(group.planes.size() <= kMaxPlanes,
                   "{}: group {}: it has at most {} planes, got {}", source, shown(group.name),
                   kMaxPlanes, group.planes.size());
  check_planes(source, group);
}

void check_pieces(const std::string& source, const SavedTensor& tensor, std::int64_t num_files) {
  check<DataError>(tensor.shape.numel() > 0,
                   "{}: tensor {} of shape {}: without elements it has no pieces, got {}", source,
                   shown(tensor.name), tensor.shape, tensor.pieces.size());
  for (const SavedPiece& piece : tensor.pieces) {
    if (piece.file < 0 || piece.file >= num_files) {
      fail<DataError>("{}: tensor {}: the file of a piece must be 0 to {}, got {}", source,
                      shown(tensor.name), num_files - 1, piece.file);
    }
  }
  // Checks the rest.
  const BoxGrid grid(source, tensor);
}

void check_tensor(const std::string& source, const SavedLayout& layout, const SavedTensor& tensor,
                  std::int64_t num_files) {
  const std::string name = shown(tensor.name);
  check<DataError>(!tensor.name.empty() && tensor.name.size() <= kMaxNameBytes &&
                       tensor.name.find('@') == std::string::npos,
                   "{}: a tensor's name has 1 to {} bytes without @, got {} ({} bytes)", source,
                   kMaxNameBytes, name, tensor.name.size());
  check<DataError>(tensor.shape.numel() <= kMaxElements,
                   "{}: tensor {}: it has at most {} elements, got shape {}", source, name,
                   kMaxElements, tensor.shape);
  check<DataError>(tensor.group >= 0 && std::cmp_less(tensor.group, layout.groups.size()),
                   "{}: tensor {}: group must be one of {}, got {}", source, name,
                   layout.groups.size(), tensor.group);
  check<DataError>(!tensor.step || *tensor.step >= 0, "{}: tensor {}: step must be >= 0, got {}",
                   source, name, tensor.step.value_or(0));
  if (!tensor.pieces.empty()) {
    check_pieces(source, tensor, num_files);
    return;
  }
  const std::int64_t end = group_of(layout, tensor).part * num_files;
  check<DataError>(
      tensor.offset >= 0 && tensor.offset <= end && tensor.shape.numel() <= end - tensor.offset,
      "{}: tensor {} of shape {} at element {} does not lie in its group's {} files, "
      "which have {} elements",
      source, name, tensor.shape, tensor.offset, num_files, end);
}

void check_names_differ(const std::string& source, const SavedLayout& layout) {
  std::unordered_set<std::string_view> names;
  for (const SavedTensor& tensor : layout.tensors) {
    if (!names.insert(tensor.name).second) {
      fail<DataError>("{}: two tensors are named {}", source, shown(tensor.name));
    }
  }
}

void check_none_overlap(const std::string& source, const SavedLayout& layout) {
  std::vector<const SavedTensor*> tensors;
  for (const SavedTensor& tensor : layout.tensors) {
    if (tensor.pieces.empty() && tensor.shape.numel() > 0) {
      tensors.push_back(&tensor);
    }
  }
  std::ranges::sort(tensors, [](const SavedTensor* a, const SavedTensor* b) {
    return std::tie(a->group, a->offset) < std::tie(b->group, b->offset);
  });
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const SavedTensor& before = *tensors[i - 1];
    const SavedTensor& tensor = *tensors[i];
    if (before.group == tensor.group && before.offset + before.shape.numel() > tensor.offset) {
      fail<DataError>("{}: tensor {} begins at element {} of group {}, inside {}", source,
                      shown(tensor.name), tensor.offset, tensor.group, shown(before.name));
    }
  }
}

void check_total(const std::string& source, const SavedLayout& layout) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;
  std::uint64_t total = 0;
  for (const SavedTensor& tensor : layout.tensors) {
    const SavedGroup& group = group_of(layout, tensor);
    // No overflow: 2^54 elements of 64 planes of 8 bytes.
    const auto nbytes = static_cast<std::uint64_t>(tensor.shape.numel()) * element_nbytes(group);
    if (nbytes > kMaxBytes - total) {
      fail<DataError>("{}: the bytes up to tensor {} of shape {} are more than {}", source,
                      shown(tensor.name), tensor.shape, kMaxBytes);
    }
    total += nbytes;
  }
}

}  // namespace

void check_layout(const std::string& source, const SavedLayout& layout, std::int64_t num_files) {
  check<DataError>(num_files >= 1 && num_files <= kMaxFiles,
                   "{}: a checkpoint has 1 to {} files, got {}", source, kMaxFiles, num_files);
  check<DataError>(layout.tensors.size() <= kMaxTensors && layout.groups.size() <= kMaxTensors,
                   "{}: a checkpoint has at most {} tensors and groups, got {} and {}", source,
                   kMaxTensors, layout.tensors.size(), layout.groups.size());
  for (const SavedGroup& group : layout.groups) {
    check_group(source, group, num_files);
  }
  for (const SavedTensor& tensor : layout.tensors) {
    check_tensor(source, layout, tensor, num_files);
  }
  check_names_differ(source, layout);
  check_none_overlap(source, layout);
  check_total(source, layout);
}

}  // namespace fsdptrain::checkpoint
