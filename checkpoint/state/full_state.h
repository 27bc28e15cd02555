#pragma once

#include <functional>
#include <vector>

#include "checkpoint/state/state_dict.h"
#include "comm/world.h"

// A training state as whole tensors, one at a time, so that no rank ever has all of it. Collective
// over the ranks of the world, which are those of the model, sharded over all of them or replicated
// on each: ConfigError for another model. Between steps. All ranks end alike: an error that is not
// of the world is that of all, with the rank where it began.
namespace fsdptrain::checkpoint {

// Takes one tensor: on the device of the ranks, contiguous. It may be a window on what is trained,
// and is not to be written to, nor there after the call. Says nothing to other ranks.
using StateSink = std::function<void(const StateEntry& entry, const Tensor& values)>;

// The same on all ranks.
struct FullStateOptions {
  StatePlanes planes = {};
  // Else rank 0 alone has a sink that is called, and the others give their parts.
  bool on_all_ranks = false;
  // Of these planes, what is wanted; not asked: all. It knows no counts of updates.
  std::function<bool(const StateEntry&)> wants = {};
};

// Gives every entry to the sink, in the order of sharded_state(), counts of updates with them. A
// rank whose sink is called has memory of the largest wanted tensor more meanwhile; others have
// none. Where a sink has thrown it gets nothing more, and the error is thrown when all ranks have
// come to the end.
void stream_full_state(comm::World& world, const TrainingState& state, const StateSink& sink,
                       const FullStateOptions& options = {});

// Whole tensors, wherever they come from.
struct FullStateSource {
  // What there is, in any order. Planes that are not loaded are passed over.
  std::vector<StateEntry> entries;
  // One of them, as its entry says, on any device. Called once for each, in the order of
  // sharded_state().
  std::function<Tensor(const StateEntry&)> values;
};

// The same on all ranks.
struct LoadFullOptions {
  StatePlanes planes = {};
  // Floating values of another dtype are converted; else they do not fit.
  bool convert_dtypes = false;
};

// The state becomes that of the source, which rank 0 has, and others do not: null. Each rank
// receives its own part. Counts of updates come with the optimizer's planes. ConfigError listing
// all that is missing, has no place or does not fit, before any value is changed. Where `values`
// throws, or returns another tensor than its entry, the entries before it are loaded and those from
// it on are as they were.
void load_full_state(comm::World& world, const TrainingState& state, const FullStateSource* source,
                     const LoadFullOptions& options = {});

}  // namespace fsdptrain::checkpoint
