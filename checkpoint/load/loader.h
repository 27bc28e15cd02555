#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/io/file_system.h"
#include "checkpoint/state/training_state.h"
#include "comm/clock.h"
#include "comm/world.h"

// Loads a state that any number of ranks saved, on any number of ranks. Collective over the ranks
// of a world, each of which reads its own part and nothing else, and checks it against the digests;
// all of them end alike: loaded, or with the same error.
namespace fsdptrain::checkpoint {

struct LoadOptions {
  // Only the values of parameters, as a beginning: no states, counts of updates or objects.
  bool parameters_only = false;
  // Floating values of another dtype are converted; else they are misfits.
  bool convert_dtypes = false;
  // What the checkpoint lacks stays as it is, or, where load_newest() has passed over one whose
  // bytes are damaged, as that one left it, which may be anything; what nobody has a place for is
  // left out, and Loaded::differences says so; else these are misfits. Another shape always is. A
  // count of updates stays as well where a state of the optimizer is lacking.
  bool allow_differences = false;
  // How long the system may take to show a rank what rank 0 sees.
  comm::Nanoseconds visible_within = std::chrono::seconds(60);
};

struct Loaded {
  std::int64_t step = 0;
  std::string attempt;
  std::filesystem::path folder;
  // How many ranks saved it.
  std::int64_t num_ranks = 0;
  // Why newer ones were not taken: one line each.
  std::vector<std::string> skipped;
  // What was allowed, one line each.
  std::vector<std::string> differences;
};

// The newest checkpoint of a folder that is valid and whose bytes are right. None where there is no
// checkpoint. DataError saying what is wrong with each where there are some and none can be had:
// values are anything then, and the program must not go on. ConfigError listing all that does not
// fit, before any value of this checkpoint is read: the state is of another model, optimizer or
// program; an object that refuses its state does so behind all values. IoError where the system
// refuses, and no older checkpoint is tried: that is for a person to decide.
std::optional<Loaded> load_newest(FileSystem& files, comm::World& world, const TrainingState& state,
                                  const std::filesystem::path& folder,
                                  const LoadOptions& options = {});

// One checkpoint, by its own folder; errors as above.
Loaded load_checkpoint(FileSystem& files, comm::World& world, const TrainingState& state,
                       const std::filesystem::path& checkpoint, const LoadOptions& options = {});

}  // namespace fsdptrain::checkpoint
