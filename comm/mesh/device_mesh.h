#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mesh/layout.h"

namespace fsdptrain::comm {

class ProcessGroup;
class World;

// The mesh of a run as one rank sees it: a layout that all ranks agree on, and the process groups
// of this rank along its axes. A handle: meshes made from one another share their groups, which end
// with the last of them.
//
// Of the thread that issues this rank's collectives. Whatever is marked collective is called by all
// ranks in the same order.
class DeviceMesh {
 public:
  // Makes the group of these ranks of the world, in that order; all of them call it. `name` says
  // which axes it runs along: "shard", "replicate+shard".
  using MakeGroup =
      std::function<std::shared_ptr<ProcessGroup>(std::span<const int> ranks, std::string name)>;
  // Gives the texts of all ranks of the world, by rank. Collective.
  using Exchange = std::function<std::vector<std::string>(std::string own)>;

  struct Options {
    int rank = 0;
    int world_size = 1;
    MakeGroup make_group;
    Exchange exchange;
    // The groups of all axes are made at once, axis by axis; else each when it is asked for, and
    // group() is collective over its members.
    bool make_groups_now = true;
  };

  // Collective. ConfigError for axes that are no mesh, on a rank that asked for it; MismatchError,
  // with one text, on all others, or on all where ranks ask for different meshes.
  DeviceMesh(std::vector<MeshAxis> axes, const Options& options);

  const MeshLayout& layout() const { return layout_; }
  int rank() const;
  int size(std::string_view axis) const { return layout_.size(axis); }
  // The index of this rank on an axis, which is its rank in the axis' group.
  int coordinate(std::string_view axis) const;

  // The group of this rank along one axis, or along several as one. Lives as long as a mesh.
  ProcessGroup& group(const std::string& axis) const { return group_along({axis}); }
  ProcessGroup& group_along(const std::vector<std::string>& axes) const;

  // The part of the mesh with this rank in it that runs along these axes.
  DeviceMesh submesh(const std::vector<std::string>& axes) const;
  // These axes as one (MeshLayout::flatten). Collective: the layouts are compared, and the group is
  // made where groups are made at once.
  DeviceMesh flatten(const std::vector<std::string>& axes, const std::string& new_name) const;

 private:
  struct Shared;
  DeviceMesh(MeshLayout layout, std::shared_ptr<Shared> shared);

  MeshLayout layout_;
  std::shared_ptr<Shared> shared_;
};

// A mesh over the ranks of this world, which outlives it; texts go through the control group.
DeviceMesh::Options mesh_options(World& world);

}  // namespace fsdptrain::comm
