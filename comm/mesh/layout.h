#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdptrain::comm {

struct MeshAxis {
  std::string name;
  std::int64_t size = 1;

  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

// Ranks in a grid with named axes, of which the last one moves fastest: with replicate=2 and
// shard=4, rank 6 is at (1, 2). Pure arithmetic; a value.
//
// Wherever several axes are named, they are in the order of the mesh, so that a set of axes has one
// order of ranks. ConfigError, with the mesh and the values, for what cannot be.
class MeshLayout {
 public:
  // All ranks of a world. A name is of letters, digits, '_', '-' and '.'.
  MeshLayout(std::vector<MeshAxis> axes, int world_size);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  // Of all axes together.
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  std::span<const int> ranks() const { return ranks_; }
  int size(std::string_view axis) const;
  // Of an axis in axes().
  std::size_t index_of(std::string_view axis) const;
  // Where a rank stands, an index per axis.
  std::vector<int> coordinate(int rank) const;

  // The ranks that differ in these axes alone, in their order; and all such groups, which together
  // are the mesh.
  std::vector<int> group_of(int rank, const std::vector<std::string>& names) const;
  std::vector<std::vector<int>> groups(const std::vector<std::string>& names) const;

  // These axes, through this rank.
  MeshLayout submesh(int rank, const std::vector<std::string>& names) const;
  // These axes as one, in the place of the first of them: its groups are groups(names).
  MeshLayout flatten(const std::vector<std::string>& names, const std::string& new_name) const;

  // "replicate=2 x shard=4"
  std::string text() const;
  // Equal for equal meshes only: names, sizes, order and ranks.
  std::string canonical_text() const;
  // XXH3 of canonical_text().
  std::uint64_t hash() const;

 private:
  MeshLayout(std::vector<MeshAxis> axes, std::vector<int> ranks);

  // Of names in the order of the mesh.
  std::vector<std::size_t> indices_of(const std::vector<std::string>& names) const;
  std::vector<std::size_t> other_axes(std::span<const std::size_t> indices) const;
  std::size_t position_of(int rank) const;
  // Positions in ranks_ while these axes run through, the last one fastest, from the origin.
  std::vector<std::size_t> positions_along(std::span<const std::size_t> indices) const;
  // How far one step along an axis is in ranks_.
  std::size_t stride(std::size_t axis) const;

  std::vector<MeshAxis> axes_;
  std::vector<int> ranks_;
};

}  // namespace fsdptrain::comm
