#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/mesh/device_mesh.h"
#include "comm/meta/phantom_carrier.h"
#include "comm/process_group.h"

namespace fsdptrain::comm {

// A world of any size of which one rank is here and no other exists. Operations are checked as
// those of a World, counted, and over at once: no tensor changes, so that on the CPU a rank takes
// the time of all that is not communication. Nobody is there to disagree, so nothing is compared.
// Belongs to one thread.
class PhantomRanks {
 public:
  // `device`: where the tensors of operations are, the CPU or meta. ConfigError unless rank is one
  // of 0 to size - 1; DeviceError for a GPU.
  PhantomRanks(int rank, int size, Device device);
  PhantomRanks(const PhantomRanks&) = delete;
  PhantomRanks& operator=(const PhantomRanks&) = delete;
  ~PhantomRanks() = default;

  int rank() const { return carrier_.rank(); }
  int size() const { return group_->size(); }
  // All ranks.
  ProcessGroup& group() { return *group_; }
  // A group of some ranks; it lives no longer than this. ConfigError for ranks that are not of the
  // world, twice there, or without this one.
  std::unique_ptr<ProcessGroup> new_group(std::vector<int> ranks, std::string name);

  // What was moved since the last reset, in all groups.
  const TrafficCounters& traffic() const { return carrier_.traffic(); }
  void reset_traffic() { carrier_.reset_traffic(); }

 private:
  PhantomCarrier carrier_;
  std::unique_ptr<ProcessGroup> group_;
};

// A mesh over these ranks, which outlive it; the others ask for the same.
DeviceMesh::Options mesh_options(PhantomRanks& ranks);

}  // namespace fsdptrain::comm
