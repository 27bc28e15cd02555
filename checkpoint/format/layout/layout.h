#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/range.h"
#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

// What a checkpoint says of where its values lie: the result of planning, not its inputs, so that a
// later planner reads it all the same. Values; pure arithmetic.
//
// Parameters of one group lie in a flat buffer of elements, each at an offset, with gaps between
// them. The files of a checkpoint share the buffer out: file f has elements [f * part, (f+1) *
// part). A group has planes: the parameters themselves, and what is kept beside each of them, such
// as a moment of the optimizer or a running average, in the same places. A tensor of a checkpoint
// is one plane of one parameter.
namespace fsdptrain::checkpoint {

// Of the plane that every group has.
inline constexpr const char* kParameters = "parameters";

struct SavedPlane {
  std::string name;
  DType dtype = DType::Float32;

  friend bool operator==(const SavedPlane&, const SavedPlane&) = default;
};

struct SavedGroup {
  // For messages: the unit that was sharded.
  std::string name;
  // Elements of the buffer that each file has; the last files may have less, or none.
  std::int64_t part = 0;
  std::vector<SavedPlane> planes;

  friend bool operator==(const SavedGroup&, const SavedGroup&) = default;
};

// A box in a tensor: offset and size per dimension.
struct Box {
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> size;

  std::int64_t numel() const;
  friend bool operator==(const Box&, const Box&) = default;
};

// Where a tensor is not one box, as under tensor parallelism: elements [begin, end) of the box,
// row-major, are in a file. The boxes of a tensor are the cells of a grid.
struct SavedPiece {
  std::int64_t file = 0;
  Box box;
  kernels::Range in_box;

  friend bool operator==(const SavedPiece&, const SavedPiece&) = default;
};

struct SavedTensor {
  std::string name;
  Shape shape;
  // Index into the groups.
  std::int64_t group = 0;
  // Of its first element in the group's buffer; the whole tensor follows.
  std::int64_t offset = 0;
  // Not empty: in place of `offset`, and they cover the tensor exactly. In the order of the boxes'
  // offsets, row-major, then of the elements.
  std::vector<SavedPiece> pieces;
  // Updates so far, as the optimizer counts them for it; frozen ones have none.
  std::optional<std::int64_t> step;

  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};

struct SavedLayout {
  std::vector<SavedGroup> groups;
  // Of the model, in its order; the names of tied parameters are those of one of them.
  std::vector<SavedTensor> tensors;

  friend bool operator==(const SavedLayout&, const SavedLayout&) = default;
};

const SavedGroup& group_of(const SavedLayout& layout, const SavedTensor& tensor);
// Null where the group has none of this name.
const SavedPlane* find_plane(const SavedGroup& group, std::string_view name);

// The name in a file of a tensor's piece: "<plane>/<tensor>", then, unless it is all of the tensor,
// "@<first element>", or "@<offset of the box>,...:<first element in it>".
std::string piece_name(const std::string& plane, const SavedTensor& tensor, std::int64_t begin,
                       std::int64_t end);
std::string piece_name(const std::string& plane, const SavedTensor& tensor,
                       const SavedPiece& piece);

// Of the planes of a group together.
std::uint64_t element_nbytes(const SavedGroup& group);

// The bytes that each file has of tensors, all planes together.
std::vector<std::uint64_t> data_nbytes_of_files(const SavedLayout& layout, std::int64_t num_files);

// What reader and writer hold a layout to: names, limits, ranges, and that each tensor is covered
// exactly, no two by the same elements. DataError naming `source`, the tensor or group and the
// values.
void check_layout(const std::string& source, const SavedLayout& layout, std::int64_t num_files);

inline constexpr std::size_t kMaxTensors = 1'000'000;
inline constexpr std::int64_t kMaxFiles = std::int64_t{1} << 20;
inline constexpr std::size_t kMaxPlanes = 64;
inline constexpr std::size_t kMaxNameBytes = 4096;
// Of a group's buffer and of a tensor.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 54;

}  // namespace fsdptrain::checkpoint
