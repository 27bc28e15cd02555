#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/format/layout/layout.h"
#include "checkpoint/state/stateful.h"
#include "comm/process_group.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/weight_average.h"
#include "shard/parts.h"
#include "shard/sharded_model.h"

// What a checkpoint is made of, as one rank has it.
namespace fsdptrain::checkpoint {

// The plane of a WeightAverage; those of an optimizer are named as its states.
inline constexpr const char* kAverage = "average";

// Whose state is saved and loaded. All of it outlives what uses this, and is the same on all ranks
// but for values. A value: pointers, null for what there is not.
struct TrainingState {
  // All units are made.
  shard::ShardedModel* model = nullptr;
  // The model's, as in ShardedModel::Options: they share out what each of them has.
  comm::ProcessGroup* replicas = nullptr;
  optim::Optimizer* optimizer = nullptr;
  optim::WeightAverage* average = nullptr;
  std::map<std::string, Stateful*> objects = {};
};

// One plane of one group: of the rank's chunk, element by element.
struct StatePlane {
  std::string name;
  Tensor values;
};

struct StateGroup {
  std::string name;
  const shard::BufferLayout* layout = nullptr;
  // Parameters first.
  std::vector<StatePlane> planes;
};

// A parameter, in the order of the model.
struct StateTensor {
  shard::ParameterPart part;
  // Index into the groups.
  std::size_t group = 0;
  // Where its number of updates stands; null on ranks that have nothing of it, and for what is not
  // trained.
  nn::Segment* segment = nullptr;
};

// The tensors of a state: windows on its memory, valid while the model and the optimizer are.
struct StateTensors {
  // Every parameter is a tensor of one group.
  std::vector<StateGroup> groups;
  std::vector<StateTensor> tensors;
  // This rank's place: index of its chunk, and of its share of that.
  int chunk_rank = 0;
  int num_chunks = 1;
  int replica_rank = 0;
  int num_replicas = 1;

  // Which file of a checkpoint this rank writes.
  int file() const { return chunk_rank * num_replicas + replica_rank; }
  int num_files() const { return num_chunks * num_replicas; }
};
// ConfigError for states of an optimizer that fit no chunk, or have the name of another plane, and
// for a model that is both sharded and replicated over several ranks.
StateTensors tensors_of(const TrainingState& state);

// Where they lie in a checkpoint; steps are those that this rank knows.
SavedLayout layout_of(const StateTensors& tensors);

}  // namespace fsdptrain::checkpoint
