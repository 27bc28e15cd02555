#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/state/training_state.h"
#include "kernels/range.h"
#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

// A training state as tensors by name. What is whole, and for that speaks to other ranks, is in
// full_state.h.
namespace fsdptrain::checkpoint {

// Which planes are meant; those that a state has not are none.
struct StatePlanes {
  bool parameters = true;
  // All states of the optimizer; counts of updates go with them.
  bool optimizer = true;
  bool average = true;

  bool has(std::string_view plane) const;
};

// One plane of one parameter.
struct StateEntry {
  std::string plane = kParameters;
  // Of the parameter.
  std::string name;
  // Of the whole.
  Shape shape;
  DType dtype = DType::Float32;
  bool trained = false;
  // So far, of the parameter; none where that is not known, and for what is not trained.
  std::optional<std::int64_t> updates = std::nullopt;
};

// An entry as this rank has it.
struct ShardedEntry {
  StateEntry entry;
  // Elements of the whole, row-major; empty where the rank has nothing of it.
  kernels::Range elements;
  // These elements, one dimension: a window on what is trained, valid while the model and the
  // optimizer are. Whoever changes parameters bumps the epoch of the model.
  Tensor values;
};

// All entries, planes of a parameter next to each other, in the order of the model, on every rank;
// replicas have all of each. Not collective: nothing is copied and nothing issued. At any time: a
// forward and a backward gather parameters elsewhere, and windows keep the values that are trained.
// Errors as those of tensors_of().
std::vector<ShardedEntry> sharded_state(const TrainingState& state, const StatePlanes& planes = {});

// An entry, and where it lies.
struct StateItem {
  StateEntry entry;
  // Index into the tensors of the state.
  std::size_t tensor = 0;
  // The rank's chunk of the plane.
  Tensor like_chunk;
};
// In the order of sharded_state().
std::vector<StateItem> items_of(const StateTensors& tensors, const StatePlanes& planes);
// Of what all ranks must have alike, as text of one length.
std::string digest_of_entries(std::span<const StateItem> items);

}  // namespace fsdptrain::checkpoint
