#include "comm/mesh/layout.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "comm/mesh/text.h"
#include "comm/ranks.h"
#include "runtime/base/edit_distance.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

void check_name(const std::string& name) {
  check<ConfigError>(!name.empty(), "device mesh: the name of an axis must not be empty");
  check<ConfigError>(std::ranges::all_of(name, is_name_character),
                     "device mesh: the name of an axis must be letters, digits, '_', '-' and '.', "
                     "got {}",
                     in_quotes(name));
}

void check_axes(const std::vector<MeshAxis>& axes) {
  check<ConfigError>(!axes.empty(), "device mesh: must have an axis");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    check_name(axes[i].name);
    const auto first = std::ranges::find(axes, axes[i].name, &MeshAxis::name) - axes.begin();
    check<ConfigError>(first == static_cast<std::ptrdiff_t>(i),
                       "device mesh: each axis must have a name of its own, got {} for axes {} "
                       "and {}",
                       in_quotes(axes[i].name), first, i);
    check<ConfigError>(axes[i].size >= 1,
                       "device mesh: axis {} must have a size of at least 1, "
                       "got {}",
                       in_quotes(axes[i].name), axes[i].size);
  }
}

// Whether the sizes multiply to `num_ranks`, without overflow.
bool is_product(const std::vector<MeshAxis>& axes, std::int64_t num_ranks) {
  for (const MeshAxis& axis : axes) {
    if (num_ranks % axis.size != 0) {
      return false;
    }
    num_ranks /= axis.size;
  }
  return num_ranks == 1;
}

}  // namespace

MeshLayout::MeshLayout(std::vector<MeshAxis> axes, int world_size) : axes_(std::move(axes)) {
  check_axes(axes_);
  check<ConfigError>(world_size >= 1 && world_size <= kMaxWorldSize,
                     "device mesh {}: the world size must be 1 to {}, got {}", text(),
                     kMaxWorldSize, world_size);
  check<ConfigError>(is_product(axes_, world_size),
                     "device mesh {}: the product of its sizes must be the world size {}", text(),
                     world_size);
  ranks_.resize(static_cast<std::size_t>(world_size));
  std::iota(ranks_.begin(), ranks_.end(), 0);
}

MeshLayout::MeshLayout(std::vector<MeshAxis> axes, std::vector<int> ranks)
    : axes_(std::move(axes)), ranks_(std::move(ranks)) {}

int MeshLayout::size(std::string_view axis) const {
  return static_cast<int>(axes_[index_of(axis)].size);
}

std::size_t MeshLayout::index_of(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &MeshAxis::name);
  if (found == axes_.end()) {
    const auto distance = [axis](const MeshAxis& other) { return edit_distance(axis, other.name); };
    fail<ConfigError>("device mesh {}: there is no axis {}: did you mean {}?", text(),
                      in_quotes(axis), std::ranges::min_element(axes_, {}, distance)->name);
  }
  return static_cast<std::size_t>(found - axes_.begin());
}

std::vector<std::size_t> MeshLayout::indices_of(const std::vector<std::string>& names) const {
  std::vector<std::size_t> indices;
  for (const std::string& name : names) {
    const std::size_t index = index_of(name);
    if (std::ranges::find(indices, index) != indices.end()) {
      fail<ConfigError>("device mesh {}: axis {} must be named once, got {}", text(),
                        in_quotes(name), fmt::join(names, ", "));
    }
    if (!indices.empty() && index < indices.back()) {
      fail<ConfigError>(
          "device mesh {}: axes must be named in the order of the mesh, {} before "
          "{}, got {}",
          text(), name, axes_[indices.back()].name, fmt::join(names, ", "));
    }
    indices.push_back(index);
  }
  if (indices.empty()) {
    fail<ConfigError>("device mesh {}: at least one of its axes must be named", text());
  }
  return indices;
}

std::vector<std::size_t> MeshLayout::other_axes(std::span<const std::size_t> indices) const {
  std::vector<std::size_t> others;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (std::ranges::find(indices, axis) == indices.end()) {
      others.push_back(axis);
    }
  }
  return others;
}

std::size_t MeshLayout::position_of(int rank) const {
  const auto found = std::ranges::find(ranks_, rank);
  if (found == ranks_.end()) {
    fail<ConfigError>("device mesh {}: rank {} is not among its ranks {}", text(), rank,
                      ranks_text(ranks_));
  }
  return static_cast<std::size_t>(found - ranks_.begin());
}

std::size_t MeshLayout::stride(std::size_t axis) const {
  std::size_t stride = 1;
  for (std::size_t inner = axis + 1; inner < axes_.size(); ++inner) {
    stride *= static_cast<std::size_t>(axes_[inner].size);
  }
  return stride;
}

std::vector<std::size_t> MeshLayout::positions_along(std::span<const std::size_t> indices) const {
  std::vector<std::size_t> positions = {0};
  for (const std::size_t axis : indices) {
    std::vector<std::size_t> outer;
    outer.swap(positions);
    for (const std::size_t begin : outer) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(axes_[axis].size); ++i) {
        positions.push_back(begin + i * stride(axis));
      }
    }
  }
  return positions;
}

std::vector<int> MeshLayout::coordinate(int rank) const {
  const std::size_t position = position_of(rank);
  std::vector<int> coordinate;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    const auto size = static_cast<std::size_t>(axes_[axis].size);
    coordinate.push_back(static_cast<int>(position / stride(axis) % size));
  }
  return coordinate;
}

std::vector<int> MeshLayout::group_of(int rank, const std::vector<std::string>& names) const {
  const std::vector<std::size_t> indices = indices_of(names);
  const std::vector<int> at = coordinate(rank);
  std::size_t begin = 0;
  for (const std::size_t axis : other_axes(indices)) {
    begin += static_cast<std::size_t>(at[axis]) * stride(axis);
  }
  std::vector<int> group;
  for (const std::size_t position : positions_along(indices)) {
    group.push_back(ranks_[begin + position]);
  }
  return group;
}

std::vector<std::vector<int>> MeshLayout::groups(const std::vector<std::string>& names) const {
  const std::vector<std::size_t> indices = indices_of(names);
  const std::vector<std::size_t> positions = positions_along(indices);
  std::vector<std::vector<int>> groups;
  for (const std::size_t begin : positions_along(other_axes(indices))) {
    std::vector<int>& group = groups.emplace_back();
    for (const std::size_t position : positions) {
      group.push_back(ranks_[begin + position]);
    }
  }
  return groups;
}

MeshLayout MeshLayout::submesh(int rank, const std::vector<std::string>& names) const {
  std::vector<MeshAxis> axes;
  for (const std::size_t index : indices_of(names)) {
    axes.push_back(axes_[index]);
  }
  return {std::move(axes), group_of(rank, names)};
}

MeshLayout MeshLayout::flatten(const std::vector<std::string>& names,
                               const std::string& new_name) const {
  const std::vector<std::size_t> indices = indices_of(names);
  check_name(new_name);
  check<ConfigError>(std::ranges::find(axes_, new_name, &MeshAxis::name) == axes_.end(),
                     "device mesh {}: a flattened axis must have a new name, got {}", text(),
                     in_quotes(new_name));
  MeshAxis merged = {new_name, 1};
  for (const std::size_t index : indices) {
    merged.size *= axes_[index].size;
  }
  std::vector<MeshAxis> axes;
  std::vector<std::size_t> order;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (axis == indices[0]) {
      axes.push_back(merged);
      order.insert(order.end(), indices.begin(), indices.end());
    } else if (std::ranges::find(indices, axis) == indices.end()) {
      axes.push_back(axes_[axis]);
      order.push_back(axis);
    }
  }
  std::vector<int> ranks;
  for (const std::size_t position : positions_along(order)) {
    ranks.push_back(ranks_[position]);
  }
  return {std::move(axes), std::move(ranks)};
}

std::string MeshLayout::text() const {
  return axes_text(axes_);
}

std::string MeshLayout::canonical_text() const {
  return to_text(MeshText{axes_, ranks_text(ranks_)});
}

std::uint64_t MeshLayout::hash() const {
  return hash_of(canonical_text());
}

}  // namespace fsdptrain::comm
