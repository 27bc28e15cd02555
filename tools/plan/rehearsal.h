#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "comm/process_group.h"
#include "tools/train/training_rank.h"

// What a trainer does with its rank, on tokens of zeros: as many as a real run has, and no data.
// All ranks call the same.
namespace fsdptrain::tools {

// What a micro-batch begins with.
inline constexpr std::string_view kMicroBatchBegins = "the tokens of a micro-batch";

// Told what begins.
using At = std::function<void(std::string_view what)>;

// A step of so many micro-batches: forwards and backwards, clipping, the update and the average of
// weights. `all` is the group of all ranks; `number` is that of the step, from 0.
void rehearse_step(TrainingRank& rank, comm::ProcessGroup& all, std::int64_t num_micro_batches,
                   std::uint64_t number, const At& at = {});

// The longest of the forwards that make samples, if there are prompts: with all parameters
// gathered, which on a CPU they stay where they fit.
void rehearse_samples(TrainingRank& rank);

// The largest parameter becomes whole on rank 0, as all do, one after the other, when weights are
// written.
void rehearse_gathering(TrainingRank& rank);

}  // namespace fsdptrain::tools
