#pragma once

#include <span>

#include "checkpoint/load/fit.h"
#include "checkpoint/load/reader.h"
#include "checkpoint/state/training_state.h"

// This rank's part of a checkpoint into its memory. Nothing here speaks to other ranks.
namespace fsdptrain::checkpoint {

// Values of all matches, which are of the reader's manifest: in place where they lie on the host in
// the dtype that is saved, else through host memory of a bounded size. DataError for what is
// damaged; values are anything then.
void read_values(CheckpointReader& reader, const StateTensors& tensors,
                 std::span<const Match> matches);
// The counts of updates, of parameters for which the optimizer has found all its states: moments
// that begin anew are corrected from their first update on.
void restore_steps(const StateTensors& tensors, std::span<const Match> matches);
// One object, on the rank of this number.
void restore_object(Stateful& object, const SavedObject& saved, int rank, int num_ranks);

}  // namespace fsdptrain::checkpoint
